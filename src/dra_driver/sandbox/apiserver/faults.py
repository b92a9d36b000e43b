"""Faults that a test orders in advance, each for the next requests that match."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """`remaining` is None for as long as the fault is not withdrawn. `hits` counts requests that met it; `hit` is set by the first one.

    A `hang` answers after `release`; `lose_answer` does the work and then breaks the connection; else the answer is `status`.
    """

    method: str
    path: re.Pattern[str]
    remaining: int | None
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    hang: bool = False
    lose_answer: bool = False
    hits: int = 0
    hit: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Withdraws the fault and lets hanging requests go on."""
        self.remaining = 0
        self.released.set()


class Faults:
    """The orders. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Takes effect with the next request."""
        with self._lock:
            self._orders.append(fault)
        return fault

    def take(self, method: str, path: str) -> Fault | None:
        """The first order that this request (path with query) matches."""
        with self._lock:
            for fault in self._orders:
                if fault.remaining != 0 and fault.method in ("*", method) and fault.path.search(path):
                    if fault.remaining:
                        fault.remaining -= 1
                    fault.hits += 1
                    fault.hit.set()
                    return fault
        return None

    def release(self) -> None:
        """Withdraws all."""
        with self._lock:
            for fault in self._orders:
                fault.release()
            self._orders.clear()
