"""Turns by key: work on one thing is done in the order in which it was asked for, work on different things does not wait.

A plain lock gives no order: an operation that came first may be overtaken by a later one while both wait. Here everybody lines up for all of its keys
at once, which also means that two who need several keys never wait for each other. With a file, turns hold between the processes that use the same
file as well (open file description locks, one byte for each key; the kernel frees them when a process dies).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from dra_driver.errors import HostError

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, process


class Turn:
    """A place in the lines of some keys. Leave by the end of the `with` block, whether it was waited for or not."""

    def __init__(self, turns: Turns, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._turns = turns
        self._has_files = False

    def wait(self) -> None:
        """Returns when all who came before, for any of the keys, have left."""
        self._turns._wait(self)  # noqa: SLF001  the two are one thing
        self._has_files = True
        self._turns._lock_file(self.keys, fcntl.F_WRLCK)  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._has_files:
            self._turns._lock_file(self.keys, fcntl.F_UNLCK)  # noqa: SLF001
        self._turns._leave(self)  # noqa: SLF001


class Turns:
    """The lines of all keys that somebody holds or waits for; others cost nothing. `path` is the file of turns between processes."""

    def __init__(self, path: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, deque[Turn]] = {}
        self._file = _open(path) if path else None

    def close(self) -> None:
        """Closes the file; nobody may hold a turn."""
        if self._file is not None:
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
    def hold(self, keys: Iterable[str]) -> Iterator[None]:
        """Lines up and waits."""
        with self.line_up(keys) as turn:
            turn.wait()
            yield

    def _wait(self, turn: Turn) -> None:
        with self._changed:
            self._changed.wait_for(lambda: all(self._lines[key][0] is turn for key in turn.keys))

    def _leave(self, turn: Turn) -> None:
        with self._changed:
            for key in turn.keys:
                self._lines[key].remove(turn)
                if not self._lines[key]:
                    del self._lines[key]
            self._changed.notify_all()

    def _lock_file(self, keys: Iterable[str], kind: int) -> None:
        if self._file is None:
            return
        for key in keys:
            start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) >> 2
            while True:
                try:
                    fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0))
                    break
                except OSError as error:
                    if error.errno != errno.EINTR:
                        raise HostError(f"lock file for turns between instances: {error.strerror}; it must be on a local file system") from error


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"lock file {path}: {error.strerror}; the directory must be writable for the driver") from error
