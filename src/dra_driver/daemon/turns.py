"""Turns by key: work on one thing is done in the order in which it was asked for, work on different things does not wait.

A plain lock gives no order: an operation that came first may be overtaken by a later one while both wait. Here everybody lines up for all of its keys
at once, which also means that two who need several keys never wait for each other. With a file, turns hold between the processes that use the same
file as well (open file description locks, one byte for each key; the kernel frees them when a process dies).

Nobody waits for ever: whoever has a turn may hang, and those behind must be able to say so and to go on with what they do have.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from dra_driver.errors import HostError

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, process
_PAUSE = 0.01  # seconds between two looks at a lock of another process; a wait in the kernel could not be ended


class Turn:
    """A place in the lines of some keys. Leave by the end of the `with` block, whether it was waited for or not."""

    def __init__(self, turns: Turns, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._turns = turns
        self._locked: list[str] = []

    def wait(self, patience: float) -> frozenset[str]:
        """Returns when all who came before, for any of the keys, have left; after `patience` seconds the keys that others still have."""
        end = time.monotonic() + patience
        busy = set(self._turns._wait(self, end))  # noqa: SLF001  the two are one thing
        for key in self.keys:
            if key not in busy:
                if self._turns._lock_file(key, end):  # noqa: SLF001
                    self._locked.append(key)
                else:
                    busy.add(key)
        return frozenset(busy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            for key in self._locked:
                self._turns._unlock_file(key)  # noqa: SLF001
        finally:
            self._turns._leave(self)  # noqa: SLF001


class Turns:
    """The lines of all keys that somebody holds or waits for; others cost nothing. `path` is the file of turns between processes."""

    def __init__(self, path: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, deque[Turn]] = {}
        self._path = path
        self._file = _open(path) if path else None

    def close(self) -> None:
        """Closes the file. While somebody still has a turn it stays open and his: the kernel frees it with the process."""
        with self._changed:
            if self._file is not None and not self._lines:
                os.close(self._file)
                self._file = None

    def line_up(self, keys: Iterable[str]) -> Turn:
        """A place at the end of the lines of all `keys`; use it in a `with` statement."""
        turn = Turn(self, tuple(sorted(set(keys))))
        with self._changed:
            for key in turn.keys:
                self._lines.setdefault(key, deque()).append(turn)
        return turn

    @contextlib.contextmanager
    def hold(self, keys: Iterable[str], patience: float) -> Iterator[frozenset[str]]:
        """Lines up and waits; the keys that others still have after `patience` seconds are not held."""
        with self.line_up(keys) as turn:
            yield turn.wait(patience)

    def _wait(self, turn: Turn, end: float) -> Iterable[str]:
        """The keys for which the turn has not come at the monotonic time `end`."""

        def behind() -> list[str]:
            return [key for key in turn.keys if self._lines[key][0] is not turn]

        with self._changed:
            self._changed.wait_for(lambda: not behind(), max(0.0, end - time.monotonic()))
            return behind()

    def _leave(self, turn: Turn) -> None:
        with self._changed:
            for key in turn.keys:
                self._lines[key].remove(turn)
                if not self._lines[key]:
                    del self._lines[key]
            self._changed.notify_all()

    def _lock_file(self, key: str, end: float) -> bool:
        """False if another process still has the key at `end`."""
        while True:
            try:
                self._fcntl(fcntl.F_WRLCK, key)
            except (BlockingIOError, PermissionError):  # EAGAIN, EACCES
                if time.monotonic() >= end:
                    return False
                time.sleep(_PAUSE)
            except OSError as error:
                raise HostError(f"lock file {self._path}: {error.strerror}; it must be on a local file system") from error
            else:
                return True

    def _unlock_file(self, key: str) -> None:
        self._fcntl(fcntl.F_UNLCK, key)

    def _fcntl(self, kind: int, key: str) -> None:
        if self._file is not None:
            start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 2
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"lock file {path}: {error.strerror}; the directory must be writable for the driver") from error
