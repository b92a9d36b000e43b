"""Time as a dependency: tests turn the hands, production asks the kernel."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Both kinds of time, and waiting. Durations are seconds."""

    def now(self) -> float:
        """Unix time, for people and for the API; may jump."""
        ...

    def monotonic(self) -> float:
        """For durations and deadlines; never jumps."""
        ...

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Waits until `event` is set or `timeout` has passed; tells whether it is set."""
        ...


class SystemClock:
    """The kernel's clocks."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some point in the past."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """As `threading.Event.wait`."""
        return event.wait(timeout)
