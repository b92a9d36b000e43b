"""Ways in which the journal's file is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

PAGE = 4096


def header(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at" * 10)


def tail(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-PAGE])


def page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[PAGE : 2 * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)


def row(path: Path) -> None:
    """A row that SQLite can read and nobody else can."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO claims (uid, namespace, name, allocation, boot_id, prepared_at) VALUES ('row', '', '', '{', '', 0)")


def orphaned_row(path: Path) -> None:
    """A device without a claim."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO devices (claim_uid, pool, device, uuid, exclusive) VALUES ('nobody', 'p', 'd', 'u', 1)")


def index(path: Path) -> None:
    """The index that keeps devices exclusive has other values than their rows."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO claims (uid, namespace, name, allocation, boot_id, prepared_at) VALUES ('one', '', '', '{}', '', 0)")
        database.execute("INSERT INTO devices (claim_uid, pool, device, uuid, exclusive) VALUES ('one', 'p', 'd', 'u', 1)")
        database.execute("DROP INDEX one_holder")
        database.execute("CREATE UNIQUE INDEX one_holder ON devices(claim_uid, device) WHERE exclusive")
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'claim_uid, device', 'uuid, pool') WHERE name = 'one_holder'")
        database.commit()


def loss(path: Path) -> None:
    path.unlink()


def emptiness(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: tuple[Callable[[Path], None], ...] = (header, tail, page, row, orphaned_row, index)
LOSSES = (*DAMAGES, loss, emptiness)
