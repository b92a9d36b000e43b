"""Two instances at work on one directory, as in a rolling update: what one is doing is not undone by the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_driver.k8s.client import Client
from dra_driver.kubelet import claims as claims_module
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


def test_a_start_does_not_wait_for_a_living_instance_that_hangs(old: Host, new: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "ASIDE", 0.05)
    hanging, fine = allocated(client, "hanging", result("toy-1")), allocated(client, "fine", result("toy-5"))
    old.prepare(fine)
    old.cdi.path(fine).unlink()
    held = Held(old)
    prepared = in_background(lambda: old.prepare(hanging))
    assert held.inside.wait(10)
    new.keeper.restore()
    assert new.specs() == {fine.uid}
    assert set(new.held()) == {fine.uid, hanging.uid}
    held.go.set()
    assert devices(prepared()) == ["toy-1"]  # type: ignore[arg-type]


def test_calls_for_a_claim_that_another_call_hangs_on_end_in_time_and_others_go_on(
    old: Host, new: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "PATIENCE", 1.0)
    hanging, fine = allocated(client, "hanging", result("toy-1")), allocated(client, "fine", result("toy-5"))
    held = Held(old)
    prepared = in_background(lambda: old.prepare(hanging))
    assert held.inside.wait(10)
    for host in (old, new):
        assert devices(host.prepare(fine)) == ["toy-5"]
        outcomes = host.keeper.unprepare([hanging, fine])
        assert "still at work on it, or hangs" in str(outcomes[hanging.uid])
        assert outcomes[fine.uid] is None
        outcomes = host.keeper.prepare([hanging, fine])  # type: ignore[assignment]
        assert "still at work on it, or hangs" in str(outcomes[hanging.uid])
        assert devices(outcomes[fine.uid]) == ["toy-5"]  # type: ignore[arg-type]
    held.go.set()
    prepared()
    assert new.unprepare(hanging) is None
    assert (new.settings(), list(new.held())) == ({}, [fine.uid])


def test_a_setting_that_hangs_for_one_claim_is_an_error_of_those_that_need_it_and_of_no_other(
    old: Host, new: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.driver.wants["toy-2"] = new.driver.wants["toy-2"] = [HostChange("mode", "fast")]
    hanging, needs_it, fine = (allocated(client, f"c{number}", result(f"toy-{number}")) for number in (1, 2, 5))
    assert devices(old.prepare(needs_it)) == ["toy-2"]
    monkeypatch.setattr(claims_module, "PATIENCE", 1.0)
    held = Held(old)
    prepared = in_background(lambda: old.prepare(hanging))
    assert held.inside.wait(10)
    for host in (old, new):
        outcomes = host.keeper.prepare([needs_it, fine])
        assert "mode is still being changed for another claim" in str(outcomes[needs_it.uid])
        assert devices(outcomes[fine.uid]) == ["toy-5"]
        given_back = host.keeper.unprepare([needs_it, fine])
        assert "mode is still being changed for another claim" in str(given_back[needs_it.uid])
        assert given_back[fine.uid] is None
    held.go.set()
    prepared()
    for claim in (hanging, needs_it):
        assert new.held() != {}
        assert old.unprepare(claim) is None
    assert (new.settings(), new.held()) == ({}, {})
