"""A journal that is damaged is set aside and replaced by an empty one; what it knew is rebuilt from elsewhere (`rebuild`).

Only damage is treated so, and only when no other instance uses the file. A file that is merely not to be had (a newer version, a read-only directory,
a full disk) stays where it is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from dra_driver.errors import JournalDamagedError, JournalError
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.journal import Journal
from dra_driver.kubelet.observer import Observer

log = logging.getLogger(__name__)

MOST_KEPT = 3
_PARTS = ("", "-wal", "-shm")  # SQLite's files, in the order in which they are moved: without the first one the others mean nothing


def open_journal(path: Path, *, alone: Callable[[], bool], observer: Observer | None = None) -> Database:
    """Opens or creates the journal's database. `alone` tells whether no other instance lives, and none can start before this returns.

    JournalError when there is none to be had; then nothing was moved or made.
    """
    observer = observer or Observer()
    if _is_missing(path):
        if not alone():
            raise JournalError(
                f"journal {path}: it is missing, and another instance works with one that nobody else can open; stop all instances first"
            )
        _set_aside(path)  # what may be left of one that was deleted, or that was being set aside
    try:
        database = _open(path)
    except JournalDamagedError as error:
        if not alone():
            raise JournalDamagedError(f"{error}; another instance uses it, so it stays as it is; stop all instances, then start one") from error
        kept = _set_aside(path)
        log.error(  # noqa: TRY400  the text says it all
            "the journal is damaged: it is kept under another name, and a new one is rebuilt",
            extra={"journal": str(path), "kept": str(kept), "error": str(error)},
        )
        observer.journal("quarantined")
        return _open(path)
    observer.journal("opened")
    return database


def _is_missing(path: Path) -> bool:
    """Not so when it cannot be told: opening it will say why."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _open(path: Path) -> Database:
    database = Database(path)
    try:
        Journal(database).entries()  # every row can be read
    except BaseException:
        database.close()
        raise
    return database


def _set_aside(path: Path) -> Path:
    """Renames the file and what belongs to it, and removes the oldest of those that were renamed before; returns the new name."""
    kept = _free_name(path)
    try:
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{part}").rename(f"{kept}{part}")
        for old in [one for one in _names(path) if one != kept][: 1 - MOST_KEPT]:
            for part in _PARTS:
                Path(f"{old}{part}").unlink(missing_ok=True)
    except OSError as error:
        raise JournalError(f"journal {path}: it is damaged and cannot be set aside: {error}; move it away by hand") from error
    return kept


def _free_name(path: Path) -> Path:
    while True:
        name = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        if name not in _names(path):
            return name


def _names(path: Path) -> list[Path]:
    """All names under which a journal was set aside, the oldest first."""
    found = {str(one) for one in path.parent.glob(f"{path.name}.damaged-*")}
    return sorted({Path(name.removesuffix("-wal").removesuffix("-shm")) for name in found})
