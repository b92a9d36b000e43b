"""Prepares in flight: a call that the kubelet repeats joins the one that runs, and an unprepare overtakes one that has changed nothing yet.

The kubelet gives up a call after its deadline and asks again while the first one still runs here. Doing the work twice at once would only make it
slower. And when a pod goes while its claim is still being read, or waits for a device, its unprepare must not wait for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Flight(Generic[T]):
    """One prepare of one claim. `overtaken` once an unprepare of the claim has come: whatever is not changed yet must stay as it is."""

    def __init__(self) -> None:
        self.overtaken = False
        self._aboard: list[Callable[[], bool]] = []
        self._landed = threading.Event()
        self._outcome: T

    def join(self, waits: Callable[[], bool]) -> None:
        """One caller more, who tells by `waits` whether it still does."""
        self._aboard.append(waits)

    def awaited(self) -> bool:
        """Whether anybody still waits: who started it may be gone, as when the kubelet restarts, and another call have joined."""
        return any(waits() for waits in self._aboard)

    def land(self, outcome: T) -> None:
        """Tells the outcome to all who joined. The first one counts."""
        if not self._landed.is_set():
            self._outcome = outcome
            self._landed.set()

    def wait(self, timeout: float) -> T | None:
        """The outcome, None if there is none within `timeout` seconds."""
        return self._outcome if self._landed.wait(max(0.0, timeout)) else None


class Flights(Generic[T]):
    """At most one flight that can be joined for each claim UID."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, Flight[T]] = {}

    def board(self, uids: Iterable[str], waits: Callable[[], bool]) -> tuple[dict[str, Flight[T]], dict[str, Flight[T]]]:
        """New flights that the caller must land, and those of others to wait for, by UID. `waits` tells whether the caller still waits."""
        started: dict[str, Flight[T]] = {}
        joined: dict[str, Flight[T]] = {}
        with self._lock:
            for uid in uids:
                if uid in self._flying:
                    joined[uid] = self._flying[uid]
                else:
                    started[uid] = self._flying[uid] = Flight()
                self._flying[uid].join(waits)
        return started, joined

    def land(self, uid: str, flight: Flight[T], outcome: T) -> None:
        """Ends a flight that `board` has started."""
        with self._lock:
            if self._flying.get(uid) is flight:
                del self._flying[uid]
        flight.land(outcome)

    def overtake(self, uids: Iterable[str]) -> None:
        """Marks the flights of these claims; later calls do not join them."""
        with self._lock:
            for uid in uids:
                flight = self._flying.pop(uid, None)
                if flight is not None:
                    flight.overtaken = True
