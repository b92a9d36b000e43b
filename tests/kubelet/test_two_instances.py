"""Two instances at work on one directory, as in a rolling update: what one is doing is not undone by the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_driver.k8s.client import Client
from dra_driver.kubelet.driver import HostChange
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import allocated, result


def in_background(work: Callable[[], object]) -> Callable[[], object]:
    """Runs `work` in a thread; the returned function waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(30)


class Held:
    """Holds up the driver's next change of a setting until `go` is set."""

    def __init__(self, host: Host) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self._apply = host.driver.apply_setting
        host.driver.apply_setting = self._wait  # type: ignore[method-assign]

    def _wait(self, change: HostChange) -> None:
        self.inside.set()
        assert self.go.wait(30)
        self._apply(change)


@pytest.fixture
def old(host: Host) -> Host:
    host.driver.wants = {"toy-1": [HostChange("mode", "fast")]}
    return host


@pytest.fixture
def new(old: Host, client: Client) -> Iterator[Host]:
    one = Host(client, old.directory, restore=False)
    yield one
    one.close()


def lines_up(host: Host) -> threading.Event:
    """Set when the instance lines up for a turn."""
    there, line_up = threading.Event(), host.turns.line_up

    def told(keys: object) -> object:
        turn = line_up(keys)  # type: ignore[arg-type]
        there.set()
        return turn

    host.turns.line_up = told  # type: ignore[method-assign, assignment]
    return there


def test_a_start_does_not_take_back_what_a_living_instance_has_finished_meanwhile(old: Host, new: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-1"))
    held, waiting = Held(old), lines_up(new)
    prepared = in_background(lambda: old.prepare(claim))
    assert held.inside.wait(10)
    restored = in_background(new.keeper.restore)
    assert waiting.wait(10), "the new one has found a half-prepared claim"
    held.go.set()
    assert devices(prepared()) == ["toy-1"]  # type: ignore[arg-type]
    restored()
    assert new.held() == {claim.uid: ["toy-1"]}
    assert (new.specs(), new.settings()) == ({claim.uid}, {"mode": "fast"})
