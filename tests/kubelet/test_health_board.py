"""From reports to a state that does not flap, survives the process and becomes taints."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import JournalError
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.health import CHECK, FAILING, RECOVERING, TIMEOUT, Health, HealthBoard

POOL, DEVICE = "node-a", "toy-0"


class HandClock:
    """Time passes when it is told to; `rounds` waits end at once, the next one ends the loop."""

    def __init__(self) -> None:
        self.time = 1_000_000_000.0
        self.rounds = 0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - 999_000_000.0

    def wait(self, event: threading.Event, timeout: float) -> bool:
        self.time += timeout
        self.rounds -= 1
        return self.rounds < 0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def board(clock: HandClock) -> HealthBoard:
    return HealthBoard("toy.example.com", clock=clock)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    one = Database(tmp_path / "state.db")
    yield one
    one.close()


def health(board: HealthBoard, device: str = DEVICE) -> Health | None:
    return next((one.health for one in board.devices() if one.device == device), None)


def watch(board: HealthBoard, clock: HandClock, seconds: float) -> None:
    """The board's loop for this time."""
    clock.rounds = round(seconds / CHECK)
    board.watch(threading.Event())


def rows(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        found = dict(connection.execute("SELECT device, state FROM health").fetchall())
    connection.close()
    return found


def test_a_device_that_nobody_reported_is_not_there(board: HealthBoard) -> None:
    assert board.devices() == []
    assert board.taints(POOL, DEVICE) == ()


@pytest.mark.parametrize(("healthy", "shown"), [(True, Health.HEALTHY), (False, Health.UNHEALTHY), (None, Health.UNKNOWN)])
def test_the_first_report_counts_at_once(board: HealthBoard, healthy: bool | None, shown: Health) -> None:
    board.report(POOL, DEVICE, healthy)
    assert health(board) is shown


@pytest.mark.parametrize(
    ("before", "reported", "pauses", "after"),
    [
        pytest.param(True, False, [5.0] * 2, Health.UNHEALTHY, id="three failures in ten seconds"),
        pytest.param(True, False, [20.0], Health.HEALTHY, id="two failures, however long"),
        pytest.param(True, False, [1.0] * 9, Health.HEALTHY, id="ten failures in nine seconds"),
        pytest.param(True, None, [5.0] * 2, Health.UNKNOWN, id="three times unknown"),
        pytest.param(False, True, [15.0] * 2, Health.HEALTHY, id="three successes in thirty seconds"),
        pytest.param(False, True, [30.0], Health.UNHEALTHY, id="two successes"),
        pytest.param(False, True, [5.0] * 5, Health.UNHEALTHY, id="successes for 25 seconds"),
        pytest.param(False, None, [5.0] * 9, Health.UNHEALTHY, id="unknown is no sign of recovery"),
        pytest.param(None, True, [15.0] * 2, Health.HEALTHY, id="known again"),
    ],
)
def test_a_change_must_be_reported_again_and_again(
    board: HealthBoard, clock: HandClock, before: bool | None, reported: bool | None, pauses: list[float], after: Health
) -> None:
    board.report(POOL, DEVICE, before)
    board.report(POOL, DEVICE, reported)
    for pause in pauses:
        clock.time += pause
        board.report(POOL, DEVICE, reported)
    assert health(board) is after


def test_the_figures_of_the_table_are_those_of_the_code() -> None:
    assert (FAILING.reports, FAILING.seconds) == (3, 10.0)
    assert (RECOVERING.reports, RECOVERING.seconds) == (3, 30.0)


@pytest.mark.parametrize("start", [True, False])
def test_a_device_that_flaps_stays_what_it_was(board: HealthBoard, clock: HandClock, start: bool) -> None:
    board.report(POOL, DEVICE, start)
    changes: list[Health | None] = []
    board.listen(lambda: changes.append(health(board)))
    for _ in range(50):
        for healthy in (not start, not start, start):
            clock.time += 20
            board.report(POOL, DEVICE, healthy)
    assert changes == []


def test_an_unknown_between_successes_begins_the_recovery_anew(board: HealthBoard, clock: HandClock) -> None:
    board.report(POOL, DEVICE, False)
    for healthy in (True, True, True, None, True, True):
        clock.time += 14
        board.report(POOL, DEVICE, healthy)
    assert health(board) is Health.UNHEALTHY


def test_a_fatal_report_counts_at_once(board: HealthBoard) -> None:
    board.report(POOL, DEVICE, True)
    board.report(POOL, DEVICE, False, "gone", fatal=True)
    assert health(board) is Health.UNHEALTHY


def test_the_worst_of_several_sources_is_shown_and_each_recovers_for_itself(board: HealthBoard, clock: HandClock) -> None:
    board.report(POOL, DEVICE, True, source="poll")
    board.report(POOL, DEVICE, False, "error 79", source="events", reason="xid")
    for _ in range(9):
        clock.time += 10
        board.report(POOL, DEVICE, True, source="poll")
    (shown,) = board.devices()
    assert (shown.health, shown.message) == (Health.UNHEALTHY, "error 79")
    for _ in range(4):
        clock.time += 10
        board.report(POOL, DEVICE, True, source="events")
    assert health(board) is Health.HEALTHY


def test_taints_name_the_reason_and_stay_as_they_are_until_recovery_lifts_them(board: HealthBoard, clock: HandClock) -> None:
    board.report(POOL, DEVICE, True)
    assert board.taints(POOL, DEVICE) == ()
    clock.time = 1_000_000_100.0
    board.report(POOL, DEVICE, False, "first words", reason="gpu-lost", fatal=True)
    (taint,) = board.taints(POOL, DEVICE)
    assert (taint.key, taint.effect, taint.value, taint.time_added) == ("toy.example.com/gpu-lost", "NoSchedule", "", "2001-09-09T01:48:20Z")
    clock.time += 50
    board.report(POOL, DEVICE, False, "other words", reason="gpu-lost", fatal=True)
    assert board.taints(POOL, DEVICE) == (taint,)
    for _ in range(4):
        clock.time += 10
        board.report(POOL, DEVICE, True)
    assert board.taints(POOL, DEVICE) == ()


def test_another_reason_is_another_taint(board: HealthBoard, clock: HandClock) -> None:
    board.report(POOL, DEVICE, False, reason="slow")
    clock.time += 100
    board.report(POOL, DEVICE, False, reason="gpu-lost", fatal=True)
    (taint,) = board.taints(POOL, DEVICE)
    assert (taint.key, taint.time_added) == ("toy.example.com/gpu-lost", "2001-09-09T01:48:20Z")


def test_the_admin_chooses_the_effect_of_an_unhealthy_device_and_unknown_keeps_nobody_away() -> None:
    board = HealthBoard("toy.example.com", effect="NoExecute")
    board.report(POOL, "a", False)
    board.report(POOL, "b", None)
    board.report(POOL, "b", None, source="other")
    assert [(taint.key, taint.effect) for taint in board.taints(POOL, "a")] == [("toy.example.com/unhealthy", "NoExecute")]
    assert [(taint.key, taint.effect) for taint in board.taints(POOL, "b")] == [("toy.example.com/unmonitored", "None")]


def test_a_silent_source_makes_its_healthy_devices_unknown_and_is_told_once(
    board: HealthBoard, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    board.report(POOL, DEVICE, True)
    board.report(POOL, "sick", False)
    caplog.clear()
    watch(board, clock, TIMEOUT)
    assert health(board) is Health.HEALTHY
    assert caplog.messages == []
    watch(board, clock, 10 * TIMEOUT)
    assert health(board) is Health.UNKNOWN
    assert health(board, "sick") is Health.UNHEALTHY, "silence is no recovery"
    assert [shown.message for shown in board.devices() if shown.device == DEVICE] == ["not checked for more than 30 s"]
    assert caplog.messages == ["device health is not reported, so it is unknown"]
    assert vars(caplog.records[0])["error"] == "no report for more than 30 s of node-a/sick, node-a/toy-0"
    for _ in range(4):
        clock.time += 10
        board.report(POOL, DEVICE, True)
        board.report(POOL, "sick", False)
    watch(board, clock, CHECK)
    assert health(board) is Health.HEALTHY
    assert caplog.messages[1:] == ["device is healthy again", "device health is reported again"]


def test_the_last_report_is_what_a_device_was_updated_by(board: HealthBoard, clock: HandClock) -> None:
    board.report(POOL, DEVICE, True)
    clock.time += 7
    board.report(POOL, DEVICE, True)
    clock.time += 5
    assert [one.updated for one in board.devices()] == [1_000_000_007.0]


def test_changes_are_told_and_nothing_else_is(board: HealthBoard) -> None:
    seen: list[Health | None] = []
    board.listen(lambda: seen.append(health(board)))
    board.report(POOL, DEVICE, True)
    board.report(POOL, DEVICE, True)
    board.report(POOL, DEVICE, False, "a", fatal=True)
    board.report(POOL, DEVICE, False, "b")
    board.report(POOL, DEVICE, False, "b")
    assert seen == [Health.HEALTHY, Health.UNHEALTHY, Health.UNHEALTHY]


def test_a_listener_that_fails_harms_no_other(board: HealthBoard, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    board.listen(lambda: 1 // 0)  # type: ignore[arg-type]
    board.listen(told.set)
    board.report(POOL, DEVICE, True)
    assert told.is_set()
    assert caplog.messages == ["a listener of device health failed"]


def test_a_restart_forgets_nothing(board: HealthBoard, clock: HandClock, database: Database) -> None:
    board.open(database)
    board.report(POOL, "fine", True)
    board.report(POOL, DEVICE, True)
    board.report(POOL, DEVICE, False, "lost", reason="gpu-lost", fatal=True)
    taints = board.taints(POOL, DEVICE)
    clock.time += 1000
    again = HealthBoard("toy.example.com", clock=clock)
    known: list[Health | None] = []
    again.listen(lambda: known.append(health(again)))
    again.open(database)
    assert known == [Health.UNHEALTHY], "who publishes hears of it before anything is reported"
    assert again.taints(POOL, DEVICE) == taints
    assert health(again, "fine") is Health.HEALTHY
    again.report(POOL, DEVICE, True)
    assert health(again) is Health.UNHEALTHY, "a restart is no recovery"


def test_devices_that_are_gone_are_forgotten_for_good(board: HealthBoard, database: Database) -> None:
    board.open(database)
    board.report(POOL, DEVICE, False)
    board.report(POOL, "gone", False)
    board.report(POOL, "gone too", False)
    board.keep([(POOL, DEVICE), (POOL, "gone too")])
    assert set(rows(database.path)) == {DEVICE, "gone too"}
    again = HealthBoard("toy.example.com")
    again.keep([(POOL, DEVICE)])
    again.open(database)
    assert set(rows(database.path)) == {DEVICE}
    assert [one.device for one in again.devices()] == [DEVICE]


def test_what_cannot_be_saved_still_counts_is_told_once_and_saved_later(
    board: HealthBoard, clock: HandClock, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    board.open(database)

    def full(self: Database, change: object) -> None:
        raise JournalError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", full)
        board.report(POOL, DEVICE, False)
        board.report(POOL, "other", False)
        assert health(board) is Health.UNHEALTHY
    assert [message for message in caplog.messages if "saved" in message] == ["device health cannot be saved, will be tried again"]
    assert rows(database.path) == {}
    watch(board, clock, CHECK)
    assert set(rows(database.path)) == {DEVICE, "other"}


def test_a_row_that_cannot_be_read_is_told_and_the_others_are_used(board: HealthBoard, database: Database, caplog: pytest.LogCaptureFixture) -> None:
    board.open(database)
    board.report(POOL, DEVICE, False)
    database.write(lambda connection: connection.execute("INSERT INTO health VALUES ('node-a', 'odd', '{\"\":{\"health\":\"Dizzy\"}}')"))
    again = HealthBoard("toy.example.com")
    again.open(database)
    assert [one.device for one in again.devices()] == [DEVICE]
    assert "saved device health cannot be read, the next report counts" in caplog.messages


def test_only_the_instance_that_leads_saves_and_it_takes_over_what_the_other_knew(clock: HandClock, database: Database) -> None:
    leading = {"old": True, "new": False}
    old, new = HealthBoard("toy.example.com", clock=clock), HealthBoard("toy.example.com", clock=clock)
    old.open(database, lambda: leading["old"])
    new.open(database, lambda: leading["new"])
    old.report(POOL, DEVICE, False, "lost", reason="gpu-lost", fatal=True)
    new.report(POOL, DEVICE, True)
    assert "gpu-lost" in rows(database.path)[DEVICE]
    told: list[Health | None] = []
    new.listen(lambda: told.append(health(new)))
    leading.update(old=False, new=True)
    watch(new, clock, CHECK)
    assert told == [Health.UNHEALTHY]
    assert new.taints(POOL, DEVICE) == old.taints(POOL, DEVICE)
