"""The one durable file of a kubelet plugin: an SQLite database in WAL mode with `synchronous=FULL`, so that a commit is one fsync.

Several processes may use it at the same time (the old and the new pod of a rolling update). Writers of one process that come while another commits
share the next commit. Schema changes only add; `meta.oldest_reader` says which schema version a program must know to use the file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from dra_driver.errors import DraError, JournalDamagedError, JournalError

R = TypeVar("R")

SCHEMA_VERSION = 2
OLDEST_READER = 2  # version 1 had no row revisions, so its writes could not be told from ours
BUSY_TIMEOUT_MS = 10_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
  uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
  allocation BLOB NOT NULL,   -- our results and configurations, API JSON
  boot_id TEXT NOT NULL, prepared_at REAL NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,   -- random, another one with each write
  prepared INTEGER NOT NULL DEFAULT 1,   -- 0 while the host is being changed for the claim
  pod_claim TEXT NOT NULL DEFAULT ''     -- the pod's name for a claim that was made from a template
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (
  claim_uid TEXT NOT NULL REFERENCES claims(uid) ON DELETE CASCADE,
  pool TEXT NOT NULL, device TEXT NOT NULL, share_id TEXT NOT NULL DEFAULT '', uuid TEXT NOT NULL,
  exclusive INTEGER NOT NULL,
  admin INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (claim_uid, device, pool, share_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_holder ON devices(uuid) WHERE exclusive;
CREATE INDEX IF NOT EXISTS holders ON devices(uuid);
CREATE TABLE IF NOT EXISTS host_changes (   -- written before the host is changed
  claim_uid TEXT NOT NULL REFERENCES claims(uid) ON DELETE CASCADE,
  position INTEGER NOT NULL, subject TEXT NOT NULL, wanted TEXT NOT NULL, before TEXT NOT NULL,
  PRIMARY KEY (claim_uid, subject)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease (id INTEGER PRIMARY KEY CHECK (id = 1), instance TEXT NOT NULL, since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS health (
  pool TEXT NOT NULL, device TEXT NOT NULL, state TEXT NOT NULL,   -- JSON
  PRIMARY KEY (pool, device)
) WITHOUT ROWID;
"""
_ADDED = {
    2: (
        "ALTER TABLE claims ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE claims ADD COLUMN prepared INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE claims ADD COLUMN pod_claim TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE devices ADD COLUMN admin INTEGER NOT NULL DEFAULT 0",
        "UPDATE devices SET admin = 1 WHERE NOT exclusive AND share_id = ''",
    )
}

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class _Job(Generic[R]):
    """A change that waits for its commit."""

    def __init__(self, change: Callable[[sqlite3.Connection], R]) -> None:
        self.change = change
        self.done = False
        self.error: BaseException | None = None
        self.result: R

    def run(self, connection: sqlite3.Connection) -> None:
        """In a transaction of several; its own part of it is taken back if it fails."""
        connection.execute("SAVEPOINT job")
        try:
            self.result = self.change(connection)
        except Exception as error:
            if not connection.in_transaction:
                raise  # a full disk, for one, ends the whole transaction
            self.error = error  # raised again where the change was asked for
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")


class Database:
    """Opens or creates the file. Any thread may call any method.

    All raise JournalError when the file cannot be used, JournalDamagedError when its content is not what a database holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        """What was found damaged since it was opened; only a new start makes that good (`quarantine`)."""
        self._reader = threading.Lock()
        self._writer = threading.Lock()
        self._queue: list[_Job[Any]] = []
        self._queue_lock = threading.Lock()
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Claims may carry secrets; SQLite gives its other files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            with contextlib.ExitStack() as opened:
                self._writing = opened.enter_context(contextlib.closing(self._connect()))
                self._prepare()
                self._reading = opened.enter_context(contextlib.closing(self._connect()))
                self._opened = opened.pop_all()

    def close(self) -> None:
        """Closes the file."""
        with self._writer, self._reader:
            self._opened.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read from; it sees what is committed, all of it as of one moment, and waits for no writer."""
        with self._reader, self._errors():
            self._reading.execute("BEGIN")
            try:
                yield self._reading
            finally:
                if self._reading.in_transaction:
                    self._reading.execute("COMMIT")

    def write(self, change: Callable[[sqlite3.Connection], R]) -> R:
        """Makes a change, all of it or nothing, and returns when it is on the disk. An exception of `change` is raised here and takes it back."""
        job = _Job(change)
        with self._queue_lock:
            self._queue.append(job)
        with self._writer:
            if not job.done:
                with self._queue_lock:
                    jobs, self._queue = self._queue, []
                self._commit(jobs)
        if job.error is not None:
            with self._errors():
                raise job.error
        return job.result

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            if len(jobs) == 1:  # the usual case: what takes back the transaction takes back the change
                jobs[0].result = jobs[0].change(self._writing)
            else:
                for job in jobs:
                    job.run(self._writing)
            self._writing.execute("COMMIT")
        except BaseException as error:  # nobody's change is on the disk
            interrupted = not isinstance(error, Exception)
            for job in jobs:
                job.error = JournalError(f"journal {self.path}: the write was interrupted") if interrupted else error
            if interrupted:
                raise
        finally:
            for job in jobs:
                job.done = True
            with contextlib.suppress(sqlite3.Error):
                if self._writing.in_transaction:
                    self._writing.execute("ROLLBACK")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000)
        connection.execute("PRAGMA foreign_keys=ON")
        return connection

    def _prepare(self) -> None:
        """Checks before anything is written: a file that a newer version needs stays as it is."""
        self._check_version()
        problem = self._writing.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem == "ok" and (row := self._writing.execute("PRAGMA foreign_key_check").fetchone()):
            problem = f"a row of {row[0]} belongs to no row of {row[2]}"
        if problem != "ok":
            raise JournalDamagedError(f"journal {self.path}: {problem}")
        self._writing.execute("PRAGMA journal_mode=WAL")
        self._writing.execute("PRAGMA synchronous=FULL")
        self._writing.execute("BEGIN IMMEDIATE")
        version = self._check_version()  # again, since another instance may have been first
        if version < SCHEMA_VERSION:
            for step in range(max(version, 1) + 1, SCHEMA_VERSION + 1) if version else ():
                for statement in _ADDED[step]:
                    self._writing.execute(statement)
            for statement in _SCHEMA.split(";\n"):
                self._writing.execute(statement)
            self._writing.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?), ('oldest_reader', ?)", (SCHEMA_VERSION, OLDEST_READER))
            if not version:
                self._writing.execute("INSERT INTO meta VALUES ('incomplete', 1)")  # in the commit that makes the file: see Journal.incomplete
        self._writing.execute("COMMIT")

    def _check_version(self) -> int:
        """The file's schema version, 0 for a new file."""
        if not self._writing.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            return 0
        found = dict(self._writing.execute("SELECT key, value FROM meta"))
        version, oldest_reader = found.get("schema"), found.get("oldest_reader")
        if not isinstance(version, int) or not isinstance(oldest_reader, int):
            raise JournalDamagedError(f"journal {self.path}: it does not say its version")
        if oldest_reader > SCHEMA_VERSION:
            raise JournalError(
                f"journal {self.path}: written by a newer version (needs schema {oldest_reader}, this program knows {SCHEMA_VERSION}); "
                "the file is left untouched, install the newer version again"
            )
        return version

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except DraError:
            raise
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.damage = f"journal {self.path}: a row cannot be read: {error}"
            raise JournalDamagedError(self.damage) from error
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                self.damage = f"journal {self.path}: {error}"
                raise JournalDamagedError(self.damage) from error
            text = f"journal {self.path}: {error}; the plugin directory must be writable and on a local file system, with space left"
            raise JournalError(text) from error
        except OSError as error:
            raise JournalError(f"journal {self.path}: {error}; the plugin directory must be writable and on a local file system") from error
