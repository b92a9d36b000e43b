"""A signal ends the wait, whichever thread gets it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from dra_driver.daemon.signals import END, EndSignals


@pytest.mark.parametrize("number", END)
def test_a_signal_of_the_process_ends_the_wait(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with EndSignals() as end:
        os.kill(os.getpid(), number)
        assert end.wait() is number
    assert signal.getsignal(number) is before


def test_waiting_within_a_time_tells_whether_a_signal_came_and_leaves_it_for_the_wait() -> None:
    with EndSignals() as end:
        assert not end.within(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert end.within(30)
        assert end.within(30)
        assert end.wait() is signal.SIGTERM


def test_a_signal_that_another_thread_gets_ends_the_wait_too() -> None:
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    with EndSignals() as end:
        other.start()
        assert other.ident is not None
        signal.pthread_kill(other.ident, signal.SIGTERM)
        assert end.wait() is signal.SIGTERM
        release.set()
        other.join()
    assert signal.set_wakeup_fd(-1) == -1
