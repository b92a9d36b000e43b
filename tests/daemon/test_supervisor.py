"""Loops under one supervisor."""

from __future__ import annotations

import logging
import threading

import pytest

from dra_driver.daemon.probes import Probes
from dra_driver.daemon.supervisor import Supervisor
from tests.clocks import HandClock


def test_a_loop_that_fails_is_started_again_with_growing_pauses() -> None:
    clock, attempts, done = HandClock(), iter(range(9)), threading.Event()

    def loop(stop: threading.Event) -> None:
        if next(attempts) < 8:
            raise ValueError("not yet")
        done.set()
        stop.wait()

    supervisor = Supervisor(clock)
    supervisor.start("restless", loop)
    assert done.wait(10)
    supervisor.stop(10)
    assert clock.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_loop_that_was_healthy_for_a_while_starts_again_soon() -> None:
    clock, attempts, done = HandClock(), iter([5, 5, 100, 5]), threading.Event()

    def loop(stop: threading.Event) -> None:
        for lasted in attempts:
            clock.time += lasted
            raise ValueError("again")
        done.set()
        stop.wait()

    supervisor = Supervisor(clock)
    supervisor.start("restless", loop)
    assert done.wait(10)
    supervisor.stop(10)
    assert clock.pauses == [0.5, 1, 0.5, 1]


def test_a_broken_loop_disturbs_no_other() -> None:
    supervisor, worked, failed = Supervisor(HandClock()), threading.Event(), threading.Event()

    def broken(stop: threading.Event) -> None:
        failed.set()
        if not stop.is_set():
            raise ValueError("broken")

    def good(stop: threading.Event) -> None:
        failed.wait(10)
        worked.set()
        stop.wait()

    supervisor.start("broken", broken)
    supervisor.start("good", good)
    assert worked.wait(10)
    supervisor.stop(10)


def test_stop_wakes_a_loop_that_waits_for_something_else() -> None:
    bell = threading.Event()

    def loop(stop: threading.Event) -> None:
        while not stop.is_set():
            bell.wait()

    supervisor = Supervisor()
    supervisor.start("waiting", loop, wake=bell.set)
    supervisor.stop(10)
    assert not [thread for thread in threading.enumerate() if thread.name == "waiting"]


def test_a_loop_that_does_not_end_is_named_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    def stuck(stop: threading.Event) -> None:
        release.wait()

    supervisor = Supervisor()
    supervisor.start("stuck", stuck)
    with caplog.at_level(logging.WARNING):
        supervisor.stop(0.01)
    assert vars(caplog.records[-1])["loops"] == ["stuck"]
    release.set()


def test_a_loop_that_waits_is_young_and_one_that_hangs_grows_old() -> None:
    clock, probes = HandClock(), Probes()
    supervisor = Supervisor(clock, probes)
    hang, waits = threading.Event(), threading.Event()

    def hanging(stop: threading.Event) -> None:
        while not stop.is_set():
            waits.set()
            hang.wait(10)

    def waiting(stop: threading.Event) -> None:
        stop.wait()

    supervisor.start("waiting", waiting)
    supervisor.start("hanging", hanging, limit=60, wake=hang.set)
    assert waits.wait(10)
    while supervisor._stops[0].age():  # until it waits
        clock.time += 1
    clock.time += 61
    health = probes.health()
    assert not health.good
    assert health.text.splitlines()[0] == "waiting: 0.0 s since it last turned"
    assert "more than 60 s" in health.text.splitlines()[1]
    supervisor.stop(10)


def test_who_waits_for_the_stop_event_in_another_thread_is_no_pulse() -> None:
    clock, probes = HandClock(), Probes()
    supervisor = Supervisor(clock, probes)
    hang, waits = threading.Event(), threading.Event()

    def loop(stop: threading.Event) -> None:
        helper = threading.Thread(target=stop.wait, daemon=True)
        helper.start()
        waits.set()
        hang.wait(10)

    supervisor.start("loop", loop, wake=hang.set)
    assert waits.wait(10)
    clock.time += 1000
    assert not probes.health().good
    supervisor.stop(10)


def test_a_loop_with_turns_of_its_own_is_judged_by_them() -> None:
    clock, probes = HandClock(), Probes()
    supervisor = Supervisor(clock, probes)
    turns = [0]

    def waiting(stop: threading.Event) -> None:
        stop.wait()

    supervisor.start("loop", waiting, pulse=lambda: turns[0], limit=60)
    clock.time += 61
    assert not probes.health().good
    turns[0] += 1
    assert probes.health().good
    supervisor.stop(10)


def test_restarts_are_counted() -> None:
    supervisor = Supervisor()
    again = threading.Event()
    failures = iter([ZeroDivisionError("a bug")])

    def loop(stop: threading.Event) -> None:
        for failure in failures:
            raise failure
        again.set()
        stop.wait()

    supervisor.start("loop", loop)
    assert again.wait(10)
    assert supervisor.restarts == {"loop": 1}
    supervisor.stop(10)
