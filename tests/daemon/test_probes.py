"""Alive and ready, told apart."""

from __future__ import annotations

from dra_driver.daemon.probes import Probes, Pulse
from tests.clocks import HandClock


def test_a_loop_is_stuck_when_its_counter_stands_still_beyond_the_limit() -> None:
    turns = [0]
    clock, probes = HandClock(), Probes()
    probes.add_loop("passes", Pulse(lambda: turns[0], clock).age, limit=60)
    probes.add_loop("other", lambda: 0.0, limit=1)
    clock.time += 60
    assert probes.health().good
    turns[0] += 1
    assert probes.health().text == "passes: 0.0 s since it last turned\nother: 0.0 s since it last turned"
    clock.time += 61
    stuck = probes.health()
    assert not stuck.good
    assert stuck.text.splitlines()[0] == "passes: 61.0 s since it last turned, more than 60 s"


def test_not_ready_says_why_and_is_no_reason_to_be_killed() -> None:
    reasons = {"first": "", "second": "not listed yet"}
    probes = Probes()
    probes.add_condition("first", lambda: reasons["first"])
    probes.add_condition("second", lambda: reasons["second"])
    assert (probes.readiness().good, probes.readiness().text) == (False, "first: ok\nsecond: not listed yet")
    assert probes.health().good
    reasons["second"] = ""
    assert probes.readiness().good


def test_a_fault_is_for_health_and_a_condition_for_readiness() -> None:
    probes, lost = Probes(), [""]
    probes.add_fault("sockets", lambda: lost[0])
    assert probes.health() == (True, "sockets: ok")
    lost[0] = "the directory is gone"
    assert probes.health() == (False, "sockets: the directory is gone")
    assert probes.readiness().good
