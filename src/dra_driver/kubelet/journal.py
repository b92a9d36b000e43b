"""The journal: which claims hold which devices, durable before the kubelet gets its answer.

SQLite in WAL mode with `synchronous=FULL`: one commit is one fsync, and its cost does not grow with the number of claims held. An exclusive device is
reserved by a row under a UNIQUE index, which is the exclusion between claims, threads and processes alike. Each row keeps the allocation that it was
made for and the claim's namespace, name and UID, so that every later question can be answered without the API server.
Schema changes only add; `meta.oldest_reader` tells which schema version a program must know to read the file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dra_driver.errors import ClaimRetryError, JournalError
from dra_driver.k8s.objects.resource import DeviceAllocationResult

SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 10_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO meta VALUES ('schema', 1), ('oldest_reader', 1);
CREATE TABLE IF NOT EXISTS claims (
  uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
  allocation BLOB NOT NULL,   -- our results and configurations, API JSON
  boot_id TEXT NOT NULL, prepared_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (
  claim_uid TEXT NOT NULL REFERENCES claims(uid) ON DELETE CASCADE,
  pool TEXT NOT NULL, device TEXT NOT NULL, share_id TEXT NOT NULL DEFAULT '', uuid TEXT NOT NULL,
  exclusive INTEGER NOT NULL,
  PRIMARY KEY (claim_uid, device, pool, share_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_holder ON devices(uuid) WHERE exclusive;
"""


@dataclass(frozen=True)
class ClaimKey:
    """A ResourceClaim as the kubelet names it. The UID is the identity; namespace and name are for the API and for people."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (UID {self.uid})"


@dataclass(frozen=True)
class HeldDevice:
    """A device of a claim; `exclusive` unless it is shared (share id) or used with admin access."""

    pool: str
    device: str
    uuid: str
    share_id: str = ""
    exclusive: bool = True


@dataclass(frozen=True)
class Entry:
    """A claim that holds devices."""

    claim: ClaimKey
    allocation: DeviceAllocationResult
    devices: tuple[HeldDevice, ...]


class Journal:
    """Opens or creates the journal at `path`. All methods may be called from any thread; they raise JournalError when the file cannot be used."""

    def __init__(self, path: Path, *, boot_id: str = "") -> None:
        self._path = path
        self._boot_id = boot_id
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(
                os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            )  # claims may carry secrets; SQLite keeps the mode for its other files
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"journal {path}: {error}; the plugin directory must be writable and on a local file system") from error
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

    def entries(self) -> list[Entry]:
        """All claims that hold devices, by UID."""
        with self._reading():
            return self._select("", ())

    def find(self, uid: str) -> Entry | None:
        """The claim with this UID."""
        with self._reading():
            found = self._select("WHERE uid = ?", (uid,))
            return found[0] if found else None

    def reserve(self, entries: Sequence[Entry]) -> dict[str, ClaimRetryError]:
        """Writes the entries in one commit. An entry whose exclusive device another claim holds is left out and returned with the reason, by UID."""
        refused: dict[str, ClaimRetryError] = {}
        with self._writing():
            for entry in entries:
                holder = self._holder(entry)
                if holder is not None:
                    refused[entry.claim.uid] = holder
                else:
                    self._insert(entry)
        return refused

    def release(self, uids: Sequence[str]) -> None:
        """Forgets the claims in one commit; unknown UIDs are fine."""
        with self._writing():
            self._db.executemany("DELETE FROM claims WHERE uid = ?", [(uid,) for uid in uids])

    def _open(self) -> None:
        try:
            if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                self._check_version()
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_TIMEOUT_MS}"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except sqlite3.DatabaseError as error:
            raise JournalError(
                f"journal {self._path}: {error}; if it is damaged, drain the node, move the file and its -wal and -shm away and start again"
            ) from error

    def _check_version(self) -> None:
        """Before anything is written: a file that a newer version needs stays as it is."""
        (oldest_reader,) = self._db.execute("SELECT value FROM meta WHERE key = 'oldest_reader'").fetchone()
        if oldest_reader > SCHEMA_VERSION:
            raise JournalError(
                f"journal {self._path}: written by a newer version (needs schema {oldest_reader}, this program knows {SCHEMA_VERSION}); "
                "the file is left untouched, install the newer version again"
            )

    def _select(self, where: str, arguments: tuple[str, ...]) -> list[Entry]:
        # `where` is one of two constants of this class; values are bound.
        devices: dict[str, list[HeldDevice]] = {}
        inner = f"SELECT uid FROM claims {where}"  # noqa: S608
        query = f"SELECT claim_uid, pool, device, uuid, share_id, exclusive FROM devices WHERE claim_uid IN ({inner})"  # noqa: S608
        for uid, pool, device, uuid, share_id, exclusive in self._db.execute(query, arguments):
            devices.setdefault(uid, []).append(HeldDevice(pool, device, uuid, share_id, bool(exclusive)))
        rows = self._db.execute(f"SELECT uid, namespace, name, allocation FROM claims {where} ORDER BY uid", arguments)  # noqa: S608
        return [
            Entry(
                ClaimKey(namespace, name, uid),
                msgspec.json.decode(allocation, type=DeviceAllocationResult),
                tuple(devices.get(uid, ())),
            )
            for uid, namespace, name, allocation in rows
        ]

    def _holder(self, entry: Entry) -> ClaimRetryError | None:
        for held in entry.devices:
            if not held.exclusive:
                continue
            row = self._db.execute(
                "SELECT namespace, name, uid FROM devices JOIN claims ON uid = claim_uid WHERE uuid = ? AND exclusive AND claim_uid != ?",
                (held.uuid, entry.claim.uid),
            ).fetchone()
            if row is not None:
                return ClaimRetryError(
                    f"claim {entry.claim}: device {held.device} ({held.uuid}) is still prepared for claim {ClaimKey(*row)}; "
                    "it becomes free when the kubelet unprepares that claim"
                )
        return None

    def _insert(self, entry: Entry) -> None:
        claim = entry.claim
        self._db.execute("DELETE FROM claims WHERE uid = ?", (claim.uid,))
        self._db.execute(
            "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)",
            (claim.uid, claim.namespace, claim.name, msgspec.json.encode(entry.allocation), self._boot_id, time.time()),
        )
        self._db.executemany(
            "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?)",
            [(claim.uid, held.pool, held.device, held.share_id, held.uuid, held.exclusive) for held in entry.devices],
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (sqlite3.Error, msgspec.MsgspecError) as error:
                raise JournalError(f"journal {self._path}: {error}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
