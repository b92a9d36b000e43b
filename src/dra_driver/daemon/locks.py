"""Locks by key: work on one thing comes after one another, work on different things does not wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator


class KeyedLocks:
    """A lock for each key that somebody holds or waits for; others cost nothing."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, keys: Iterable[str]) -> Iterator[None]:
        """Holds the locks of all `keys`, taken in sorted order so that two holders never wait for each other."""
        with contextlib.ExitStack() as held:
            for key in sorted(set(keys)):
                held.enter_context(self._one(key))
            yield

    @contextlib.contextmanager
    def _one(self, key: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1
