"""A journal that is damaged is set aside, and nothing else is."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.errors import JournalDamagedError, JournalError
from dra_driver.kubelet.database import SCHEMA_VERSION, Database
from dra_driver.kubelet.journal import Journal
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.quarantine import MOST_KEPT, open_journal
from tests.kubelet import damage
from tests.kubelet.damage import DAMAGES
from tests.kubelet.test_journal import entry


class Outcomes(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def journal(self, outcome: str) -> None:
        self.seen.append(outcome)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with claims that nobody has open."""
    path = tmp_path / "state.db"
    with closing(Database(path)) as database:
        Journal(database).reserve([entry(str(number), f"gpu-{number}") for number in range(20)])
        Journal(database).complete()
    return path


def alone() -> bool:
    return True


def contents(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.parent.iterdir()}


def set_aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob("state.db.damaged-*"))


@pytest.mark.parametrize("hurt", DAMAGES)
def test_a_damaged_journal_is_kept_under_another_name_and_a_new_one_is_made(
    path: Path, hurt: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    hurt(path)
    before = path.read_bytes()
    outcomes = Outcomes()
    with closing(open_journal(path, alone=alone, observer=outcomes)) as database:
        journal = Journal(database)
        assert journal.entries() == []
        assert journal.is_incomplete()
    (kept,) = set_aside(path)
    assert kept.read_bytes() == before
    assert outcomes.seen == ["quarantined"]
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "the journal is damaged" in told.message
    assert vars(told)["kept"] == str(kept)
    assert "state.db" in vars(told)["error"]


def test_what_belongs_to_the_file_is_kept_with_it(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:  # so that SQLite does not tidy up
        other.execute("INSERT INTO health VALUES ('pool', 'device', '{}')")
        other.commit()
        wal = Path(f"{path}-wal").read_bytes()
        damage.page(path)
        open_journal(path, alone=alone).close()
    kept = {one.name.rpartition("Z")[2]: one for one in set_aside(path)}
    assert kept.keys() == {"", "-wal", "-shm"}
    assert kept["-wal"].read_bytes() == wal


def test_a_good_journal_is_just_opened(path: Path) -> None:
    outcomes = Outcomes()
    with closing(open_journal(path, alone=alone, observer=outcomes)) as database:
        assert Journal(database).count() == 20
        assert not Journal(database).is_incomplete()
    assert outcomes.seen == ["opened"]
    assert set_aside(path) == []


@pytest.mark.parametrize("hurt", DAMAGES)
def test_nothing_is_moved_while_another_instance_lives(path: Path, hurt: Callable[[Path], None]) -> None:
    hurt(path)
    before = path.read_bytes()
    with pytest.raises(JournalDamagedError, match="another instance uses it, so it stays as it is; stop all instances"):
        open_journal(path, alone=lambda: False)
    assert path.read_bytes() == before
    assert set_aside(path) == []


def test_no_second_journal_is_made_beside_one_that_was_deleted_while_an_instance_has_it_open(path: Path) -> None:
    with closing(Database(path)):
        for part in ("", "-wal", "-shm"):
            Path(f"{path}{part}").unlink()
        with pytest.raises(JournalError, match="it is missing, and another instance works with one that nobody else can open"):
            open_journal(path, alone=lambda: False)
        assert contents(path) == {}
    open_journal(path, alone=alone).close()


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'oldest_reader'", (SCHEMA_VERSION + 1,))
        database.execute("UPDATE claims SET allocation = '{'")  # damage to us, not to the newer version


def directory_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(("hinder", "text"), [(newer, "written by a newer version"), (directory_in_its_place, "must be writable")])
def test_a_journal_that_is_merely_not_to_be_had_stays_as_it_is(path: Path, hinder: Callable[[Path], None], text: str) -> None:
    hinder(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(JournalError, match=text) as caught:
        open_journal(path, alone=alone)
    assert not isinstance(caught.value, JournalDamagedError)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert set_aside(path) == []


@pytest.fixture
def somebody(path: Path) -> Iterator[Path]:
    """The journal in a directory that is read by somebody who may not write there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        place = shutil.copy(path, directory)
        Path(directory).chmod(0o755)
        Path(place).chmod(0o644)
        yield Path(place)


@pytest.mark.skipif(os.getuid() != 0, reason="needs to be root, to become somebody else")
@pytest.mark.parametrize("hurt", [None, damage.header, damage.loss])
def test_a_directory_that_cannot_be_written_is_an_error_and_no_damage(somebody: Path, hurt: Callable[[Path], None] | None) -> None:
    if hurt:
        hurt(somebody)
    before = contents(somebody)
    os.seteuid(65534)
    try:
        with pytest.raises(JournalError, match="must be writable") as caught:
            open_journal(somebody, alone=alone)
    finally:
        os.seteuid(0)
    assert not isinstance(caught.value, JournalDamagedError)
    assert contents(somebody) == before


def test_a_full_disk_is_an_error_and_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Database) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    before = contents(path)
    monkeypatch.setattr(Database, "_check_version", full)
    with pytest.raises(JournalError, match="with space left") as caught:
        open_journal(path, alone=alone)
    assert not isinstance(caught.value, JournalDamagedError)
    assert contents(path) == before


def test_the_last_three_are_kept_and_none_is_overwritten(path: Path) -> None:
    for number in range(MOST_KEPT + 2):  # several in one second
        path.write_bytes(f"garbage {number}".encode() * 100)
        open_journal(path, alone=alone).close()
    assert [one.read_bytes()[:9] for one in set_aside(path)] == [f"garbage {number}".encode() for number in range(2, MOST_KEPT + 2)]


def test_a_new_journal_never_reads_what_is_left_of_an_old_one(path: Path) -> None:
    """The process was killed when it had moved the first of the files."""
    with closing(Database(path)) as database:
        Journal(database).reserve([entry("late", "gpu-late")])
        wal = Path(f"{path}-wal").read_bytes()
    path.unlink()
    Path(f"{path}-wal").write_bytes(wal)
    with closing(open_journal(path, alone=alone)) as new:
        assert Journal(new).entries() == []
        assert Journal(new).is_incomplete()
    (kept,) = set_aside(path)
    assert kept.name.endswith("-wal")
    assert kept.read_bytes() == wal


def test_a_file_that_cannot_be_set_aside_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: object) -> Path:
        raise PermissionError(1, "Operation not permitted")

    damage.header(path)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(JournalError, match=r"it is damaged and cannot be set aside: .*; move it away by hand"):
        open_journal(path, alone=alone)
