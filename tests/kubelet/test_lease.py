"""Which of the living instances leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.kubelet import lease
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.lease import Lease


class Bed:
    """Instances in the order of their starts; each has the journal's file open for itself, as another process would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.alive: set[str] = set()
        self.registered: set[str] = set()
        self.changes: list[str] = []
        self._databases: list[Database] = []

    def begin(self, uid: str) -> Lease:
        database = Database(self.path)
        self._databases.append(database)
        self.alive.add(uid)

        def lives(other: str) -> bool:
            return other in self.alive

        return Lease(database, uid, lives=lives, registered=lambda: uid in self.registered, changed=lambda: self.changes.append(uid))

    def close(self) -> None:
        for database in self._databases:
            database.close()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    one = Bed(tmp_path / "state.db")
    yield one
    one.close()


def test_the_first_one_leads_before_it_is_registered(bed: Bed) -> None:
    first = bed.begin("first")
    assert not first.leads()
    assert first.take()
    assert first.leads()
    assert bed.changes == ["first"]


def test_the_newer_one_leads_when_the_kubelet_has_accepted_it_and_not_before(bed: Bed) -> None:
    old = bed.begin("old")
    old.take()
    new = bed.begin("new")
    assert not new.take()
    assert old.leads()
    assert new.problem() == ""
    bed.registered.add("new")
    assert new.problem() == "the lease is ours to take and not taken yet"
    assert new.take()
    assert (old.problem(), new.problem()) == ("", "")
    assert (old.leads(), new.leads()) == (False, True)
    assert bed.changes == ["old", "new", "old"]


def test_the_older_one_never_takes_it_from_the_newer(bed: Bed) -> None:
    old, new = bed.begin("old"), bed.begin("new")
    bed.registered |= {"old", "new"}
    new.take()
    for _ in range(3):  # the kubelet restarts and accepts both again, in any order
        assert not old.take()
        assert new.take()
    assert bed.changes == ["new"]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_the_newest_living_one_follows(bed: Bed, end: str) -> None:
    first, second, third = (bed.begin(uid) for uid in ("first", "second", "third"))
    bed.registered |= bed.alive
    third.take()
    if end == "stopped":
        third.release()
    bed.alive.remove("third")
    for one in (first, second, first, second):
        one.take()
    assert (first.leads(), second.leads()) == (False, True)


def test_one_that_comes_back_goes_on(bed: Bed) -> None:
    bed.begin("one").take()
    again = bed.begin("one")  # the container of the pod was restarted
    assert again.take()
    assert again.leads()


def test_another_one_s_lease_is_not_released(bed: Bed) -> None:
    old, new = bed.begin("old"), bed.begin("new")
    old.take()
    bed.registered.add("new")
    new.take()
    old.release()
    assert new.leads()


def test_of_two_that_see_a_dead_holder_at_once_one_gets_it(bed: Bed) -> None:
    bed.begin("dead").take()
    bed.alive.clear()
    begin = threading.Barrier(2)

    def take(one: Lease) -> None:
        begin.wait()
        one.take()

    rivals = [bed.begin("a"), bed.begin("b")]
    threads = [threading.Thread(target=take, args=(one,)) for one in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.leads() for one in rivals) == [False, True]


def test_the_loop_takes_it_when_it_is_told_and_when_the_holder_dies(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    old = bed.begin("old")
    old.take()
    new = bed.begin("new")
    stop, changed = threading.Event(), threading.Event()
    new._changed = changed.set
    monkeypatch.setattr(lease, "PERIOD", 60.0)
    loop = threading.Thread(target=new.run, args=(stop,), daemon=True)
    loop.start()
    bed.registered.add("new")
    new.ring()
    assert changed.wait(10), "won"
    changed.clear()
    bed.alive.add("newer")
    old._database.write(lambda connection: connection.execute("UPDATE lease SET instance = 'newer', since = since + 1"))
    monkeypatch.setattr(lease, "PERIOD", 0.01)
    new.ring()
    assert changed.wait(10), "lost"
    changed.clear()
    bed.alive.remove("newer")
    assert changed.wait(10), "won again, and nobody rang"
    stop.set()
    loop.join(10)
    assert not loop.is_alive()
    assert new.leads()


def test_a_lease_that_cannot_be_read_is_not_held_and_told_once(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    one = bed.begin("one")
    one.take()
    ask: Callable[[], bool]
    for ask in (one.leads, one.take, one.leads):
        one._database._reading.close()
        assert not ask()
    assert "journal" in one.problem()
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 1


def test_a_lease_from_before_a_reboot_is_none_that_a_newer_instance_cannot_take(bed: Bed) -> None:
    first = bed.begin("first")
    before = first._started + 900_000  # that boot lasted for ten days; the pod has the same UID after it
    first._database.write(lambda connection: connection.execute("INSERT INTO lease VALUES (1, 'first', ?)", (before,)))
    assert first.take()
    second = bed.begin("second")
    bed.registered |= {"first", "second"}
    assert second.take()
    assert not first.take()
