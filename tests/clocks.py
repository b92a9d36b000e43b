"""Clocks for tests: time passes when it is told to."""

from __future__ import annotations

import threading


class HandClock:
    """Stands still until a test sets `time`; a wait takes no time and lets its own pass. `pauses` are the waits that were asked for."""

    def __init__(self, time: float = 1_800_000_000.25) -> None:
        self.time = time
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, event: threading.Event, timeout: float) -> bool:
        self.pauses.append(timeout)
        self.time += timeout
        return event.is_set()
