"""When Events are written: at a change, not too often, again before they expire, and with patience."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dra_driver.controller.announcer import KEEP_ALIVE, LONGEST_PAUSE, SPACING, Announcer
from dra_driver.controller.report import ClassReport, Problem
from dra_driver.k8s.client import Client
from dra_driver.k8s.events import EVENTS, Event, EventRecorder
from dra_driver.sandbox.apiserver import ApiServer
from tests.clocks import HandClock
from tests.controller.bed import LogLines

GOOD = ClassReport("one", "uid-1", devices=2, matching=2, nodes=1)
LESS = ClassReport("one", "uid-1", devices=2, matching=1, nodes=1)
BAD = ClassReport("one", "uid-1", problems=(Problem(0, "x", "wrong"),))
NEVER = threading.Event()


class Bed:
    def __init__(self, api: ApiServer, clock: HandClock) -> None:
        self.client = Client(api.connection, "test")
        self.announcer = Announcer(EventRecorder(self.client, "dra-driver-controller", clock=clock), clock)

    def write(self) -> float:
        return self.announcer.write(NEVER)

    def events(self) -> dict[str, int]:
        return {event.reason: count(event) for event in self.client.list(EVENTS).items}


def count(event: Event) -> int:
    return event.series.count if event.series else 1


@pytest.fixture
def own(api: ApiServer, clock: HandClock) -> Iterator[Bed]:
    found = Bed(api, clock)
    yield found
    found.client.close()


def test_an_unchanged_state_is_kept_alive_as_a_series(own: Bed, clock: HandClock, api: ApiServer) -> None:
    own.announcer.tell(GOOD)
    assert own.write() == KEEP_ALIVE < 3600
    for _ in range(3):
        clock.time += KEEP_ALIVE - 1
        own.announcer.tell(GOOD)
        assert own.write() == 1
        clock.time += 1
        own.write()
    assert own.events() == {"Matches": 4}
    assert len(api.requests("POST")) == 1


def test_new_counts_of_the_same_state_are_told_when_it_is_due(own: Bed, clock: HandClock) -> None:
    own.announcer.tell(GOOD)
    own.write()
    own.announcer.tell(LESS)
    assert own.write() == KEEP_ALIVE
    clock.time += KEEP_ALIVE
    own.write()
    assert {event.note: count(event) for event in own.client.list(EVENTS).items} == {
        "2 of 2 devices chosen on 1 node.": 1,
        "1 of 2 devices chosen on 1 node.": 1,
    }


def test_a_class_that_flickers_gets_few_events(own: Bed, clock: HandClock, log: LogLines) -> None:
    own.announcer.tell(GOOD)
    own.write()
    clock.time += 1
    own.announcer.tell(BAD)
    assert own.write() == SPACING - 1
    own.announcer.tell(GOOD)
    assert own.write() == KEEP_ALIVE - 1
    own.announcer.tell(BAD)
    clock.time += SPACING
    own.write()
    assert own.events() == {"Matches": 1, "SelectorInvalid": 1}
    assert [line["state"] for line in log.of("device class judged")] == ["Matches", "SelectorInvalid", "Matches", "SelectorInvalid"]


def test_a_server_that_is_away_is_asked_with_growing_pauses(own: Bed, clock: HandClock, api: ApiServer, log: LogLines) -> None:
    storm = api.fail("POST", status=500, times=None)
    own.announcer.tell(BAD)
    own.announcer.tell(ClassReport("two", "uid-2", devices=1, matching=1))
    pauses = []
    for attempt in range(1, 9):
        pauses.append(own.write())
        assert storm.hits == attempt
        clock.time += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]
    own.announcer.tell(GOOD)  # only the newest state is written
    storm.release()
    assert own.write() == KEEP_ALIVE
    assert [event.reason for event in own.client.list(EVENTS).items] == ["Matches", "Matches"]
    assert [len(log.of(text)) for text in ("Events cannot be written", "Events are written again")] == [1, 1]
    assert (own.announcer.written, own.announcer.failed) == (2, 8)


def test_what_is_refused_waits_for_the_next_time_without_holding_up_others(own: Bed, clock: HandClock, api: ApiServer) -> None:
    api.fail("POST", status=403, reason="Forbidden", times=1)
    own.announcer.tell(BAD)
    clock.time += 1
    own.announcer.tell(ClassReport("two", "uid-2", devices=1, matching=1))
    assert own.write() == KEEP_ALIVE
    assert own.events() == {"Matches": 1}
    clock.time += KEEP_ALIVE
    own.write()
    assert own.events() == {"Matches": 2, "SelectorInvalid": 1}


def test_a_class_that_has_gone_is_not_written_of(own: Bed, clock: HandClock, log: LogLines) -> None:
    own.announcer.tell(GOOD)
    own.announcer.retain({"uid-2"})
    clock.time += KEEP_ALIVE
    own.write()
    assert own.events() == {}
    assert [line["was"] for line in log.of("device class gone")] == ["Matches"]


def test_a_change_during_a_write_is_written_next(own: Bed, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    record = EventRecorder.record

    def slowly(self: EventRecorder, *args: object, **kwargs: object) -> None:
        monkeypatch.setattr(EventRecorder, "record", record)
        own.announcer.tell(BAD)
        record(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(EventRecorder, "record", slowly)
    own.announcer.tell(GOOD)
    assert own.write() == SPACING
    clock.time += SPACING
    own.write()
    assert own.events() == {"Matches": 1, "SelectorInvalid": 1}
