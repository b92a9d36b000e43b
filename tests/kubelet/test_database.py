"""The file under the journal: durability, versions, damage."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.errors import JournalDamagedError, JournalError
from dra_driver.kubelet.database import OLDEST_READER, SCHEMA_VERSION, Database
from dra_driver.kubelet.journal import Journal
from tests.kubelet import damage

FIRST_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema', 1), ('oldest_reader', 1);
CREATE TABLE claims (uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, allocation BLOB NOT NULL, boot_id TEXT NOT NULL,
  prepared_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE devices (claim_uid TEXT NOT NULL REFERENCES claims(uid) ON DELETE CASCADE, pool TEXT NOT NULL, device TEXT NOT NULL,
  share_id TEXT NOT NULL DEFAULT '', uuid TEXT NOT NULL, exclusive INTEGER NOT NULL, PRIMARY KEY (claim_uid, device, pool, share_id)) WITHOUT ROWID;
CREATE UNIQUE INDEX one_holder ON devices(uuid) WHERE exclusive;
INSERT INTO claims VALUES ('1', 'ns', 'old', '{"results":[]}', 'boot', 1.0);
INSERT INTO devices VALUES ('1', 'node', 'a', '', 'GPU-a', 1), ('1', 'node', 'b', '', 'GPU-b', 0);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plugin" / "state.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with closing(Database(path)) as one:
        yield one


def put(key: str, value: int = 1) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute("INSERT INTO meta VALUES (?, ?)", (key, value)).rowcount


def keys(database: Database) -> set[str]:
    with database.reading() as connection:
        return {key for (key,) in connection.execute("SELECT key FROM meta")} - {"schema", "oldest_reader", "incomplete"}


def test_every_commit_is_synced_to_the_disk(database: Database) -> None:
    assert database.write(lambda connection: connection.execute("PRAGMA synchronous").fetchone()) == (2,)
    assert database.write(lambda connection: connection.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


def test_only_the_driver_may_read_it(database: Database, path: Path) -> None:
    database.write(put("x"))
    assert {one.stat().st_mode & 0o077 for one in path.parent.iterdir()} == {0}


def test_writers_that_come_during_a_commit_share_the_next_one(database: Database) -> None:
    commits: list[str] = []
    database._writing.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
    inside, go = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        put("first")(connection)
        inside.set()
        assert go.wait(30)

    threads = [threading.Thread(target=database.write, args=(slow,))]
    threads[0].start()
    assert inside.wait(30)
    threads += [threading.Thread(target=database.write, args=(put(f"k{number}"),)) for number in range(6)]
    for thread in threads[1:]:
        thread.start()
    while len(database._queue) < 6:
        threads[-1].join(0.01)
    go.set()
    for thread in threads:
        thread.join(30)
    assert keys(database) == {"first", *(f"k{number}" for number in range(6))}
    assert len(commits) == 2


def test_a_change_that_fails_takes_back_itself_and_nothing_of_its_neighbours(database: Database) -> None:
    inside, go = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def slow(connection: sqlite3.Connection) -> None:
        inside.set()
        assert go.wait(30)

    def failing() -> None:
        def change(connection: sqlite3.Connection) -> None:
            put("taken back")(connection)
            raise ValueError("no")

        with pytest.raises(ValueError, match="no") as caught:
            database.write(change)
        errors.append(caught.value)

    threads = [threading.Thread(target=database.write, args=(slow,))]
    threads[0].start()
    assert inside.wait(30)
    threads += [threading.Thread(target=failing), threading.Thread(target=database.write, args=(put("kept"),))]
    for thread in threads[1:]:
        thread.start()
    while len(database._queue) < 2:
        threads[-1].join(0.01)
    go.set()
    for thread in threads:
        thread.join(30)
    assert keys(database) == {"kept"}
    assert len(errors) == 1


def test_a_reader_waits_for_no_writer(database: Database) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        put("later")(connection)
        inside.set()
        assert go.wait(30)

    writer = threading.Thread(target=database.write, args=(slow,))
    writer.start()
    assert inside.wait(30)
    assert keys(database) == set()
    go.set()
    writer.join(30)
    assert keys(database) == {"later"}


def test_a_full_disk_is_an_error_that_takes_everything_back(database: Database) -> None:
    pages = database.write(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    database.write(lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone())
    with pytest.raises(JournalError, match=r"state\.db: database or disk is full; .* with space left"):
        database.write(lambda connection: connection.executemany("INSERT INTO meta VALUES (?, 1)", [("k" * 900 + str(n),) for n in range(50)]))
    assert keys(database) == set()
    database.write(lambda connection: connection.execute("PRAGMA max_page_count=1000000").fetchone())
    database.write(put("works again"))


def test_a_file_of_the_first_version_is_taken_over_with_its_claims(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript(FIRST_SCHEMA)
    with closing(Database(path)) as database:
        (entry,) = Journal(database).entries()
    assert (entry.claim.name, entry.prepared, entry.changes) == ("old", True, ())
    assert [(held.uuid, held.exclusive, held.admin) for held in entry.devices] == [("GPU-a", True, False), ("GPU-b", False, True)]


def test_two_instances_that_start_at_once_take_over_an_old_file_once(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript(FIRST_SCHEMA)
    opened: list[Database] = []
    threads = [threading.Thread(target=lambda: opened.append(Database(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(opened) == 4
    for one in opened:
        assert len(Journal(one).entries()) == 1
        one.close()


def test_a_newer_file_that_needs_a_newer_program_is_refused_and_left_untouched(path: Path) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("UPDATE meta SET value = ? WHERE key = 'oldest_reader'", (SCHEMA_VERSION + 1,))
        newer.execute("DROP TABLE devices")  # as a newer version may have done
    before = path.read_bytes()
    with pytest.raises(JournalError, match="written by a newer version") as caught:
        Database(path)
    assert not isinstance(caught.value, JournalDamagedError)
    assert path.read_bytes() == before


def test_a_newer_file_that_this_version_can_use_is_used_and_keeps_what_the_newer_one_added(path: Path) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (SCHEMA_VERSION + 1,))
        newer.execute("ALTER TABLE claims ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
        newer.execute("CREATE TABLE later (a)")
    with closing(Database(path)) as database:
        assert Journal(database).entries() == []
        with database.reading() as connection:
            assert dict(connection.execute("SELECT key, value FROM meta")) == {
                "schema": SCHEMA_VERSION + 1,
                "oldest_reader": OLDEST_READER,
                "incomplete": 1,
            }


@pytest.mark.parametrize("hurt", [damage.header, damage.tail, damage.page, damage.orphaned_row, damage.index])
def test_damage_is_an_error_of_its_own_that_names_the_file(path: Path, hurt: Callable[[Path], None]) -> None:
    Database(path).close()
    hurt(path)
    with pytest.raises(JournalDamagedError, match=r"state\.db: "):
        Database(path)


def test_an_empty_file_is_an_empty_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    Database(path).close()


def test_a_row_that_cannot_be_decoded_is_damage(path: Path) -> None:
    with closing(Database(path)) as database:
        database.write(
            lambda connection: connection.execute(
                "INSERT INTO claims (uid, namespace, name, allocation, boot_id, prepared_at) VALUES (1,'','','{',0,0)"
            )
        )
        assert database.damage == ""
        with pytest.raises(JournalDamagedError, match="a row cannot be read"):
            Journal(database).entries()
        assert "a row cannot be read" in database.damage


def test_a_directory_that_cannot_be_made_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="plugin directory must be writable") as caught:
        Database(tmp_path / "file" / "state.db")
    assert not isinstance(caught.value, JournalDamagedError)


def queued(database: Database, *changes: Callable[[sqlite3.Connection], object]) -> list[BaseException | None]:
    """Writes all changes in one commit; what was raised for each, None where nothing was."""
    inside, go = threading.Event(), threading.Event()
    raised: list[BaseException | None] = [None] * len(changes)

    def slow(connection: sqlite3.Connection) -> None:
        inside.set()
        assert go.wait(30)

    def write(number: int) -> None:
        try:
            database.write(changes[number])
        except BaseException as error:  # noqa: BLE001
            raised[number] = error

    threads = [threading.Thread(target=database.write, args=(slow,))]
    threads[0].start()
    assert inside.wait(30)
    for number in range(len(changes)):
        threads.append(threading.Thread(target=write, args=(number,)))
        threads[-1].start()
        while len(database._queue) <= number:
            threads[-1].join(0.01)
    go.set()
    for thread in threads:
        thread.join(30)
    return raised


def test_whatever_ends_a_commit_is_told_to_all_who_shared_it(database: Database) -> None:
    def ends_the_thread(connection: sqlite3.Connection) -> None:
        raise SystemExit

    raised = queued(database, put("a"), put("b"), ends_the_thread, put("d"))
    assert None not in raised, "nothing of it is on the disk"
    assert keys(database) == set()
    database.write(put("c"))
    assert keys(database) == {"c"}


def test_a_write_after_the_end_is_an_error_like_others(path: Path) -> None:
    database = Database(path)
    database.close()
    with pytest.raises(JournalError):
        database.write(put("late"))
    with pytest.raises(JournalError):
        keys(database)


def test_a_write_that_waits_while_the_file_is_closed_is_an_error_like_others(path: Path) -> None:
    database = Database(path)
    errors: list[BaseException] = []

    def late() -> None:
        try:
            database.write(put("late"))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with database._writer:
        thread = threading.Thread(target=late)
        thread.start()
        while not database._queue:
            thread.join(0.01)
        with database._reader:
            database._opened.close()
    thread.join(30)
    assert [type(one) for one in errors] == [JournalError]
