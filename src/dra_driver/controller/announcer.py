"""Says what has changed about a DeviceClass: a log line at once, an Event on the class soon after, and the Event again before the API forgets it.

Only the newest state of each class waits to be written. An API server that is away is asked again with growing pauses, one request at a time; what
it refuses for good is left until the state changes or is due again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass

from dra_driver.controller.report import WARNINGS, ClassReport
from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.errors import ApiError
from dra_driver.k8s.events import EventRecorder, ObjectReference
from dra_driver.k8s.objects.resource import DEVICE_CLASSES

log = logging.getLogger(__name__)

ACTION = "EvaluateSelectors"
KEEP_ALIVE = 1800.0
"""Seconds after which an unchanged state is written again; the API keeps Events for an hour."""

SPACING = 10.0
"""Least seconds between two Events of one class, however often it changes."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_TICK = 5.0


@dataclass
class _Entry:
    report: ClassReport
    due: float
    written: tuple[str, ...] = ()
    written_at: float | None = None


class Announcer:
    """`tell` and `retain` from one thread, `run` in another. `written` and `failed` count."""

    def __init__(self, recorder: EventRecorder, clock: Clock | None = None) -> None:
        self.written = self.failed = 0
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._entries: dict[str, _Entry] = {}
        self._pause = 0.0
        self._not_before = 0.0
        self._trouble = Trouble(log, "Events cannot be written", "Events are written again")

    def tell(self, report: ClassReport) -> None:
        """The present state of one class, changed or not."""
        now = self._clock.monotonic()
        with self._lock:
            entry = self._entries.get(report.uid)
            before = entry.report if entry else None
            if entry is None:
                entry = self._entries[report.uid] = _Entry(report, due=now)
            entry.report = report
            if before and before.identity != report.identity:
                last = entry.written_at
                if report.identity == entry.written and last is not None:
                    entry.due = last + KEEP_ALIVE
                else:
                    entry.due = now if last is None else max(now, last + SPACING)
        if before is None or before.identity != report.identity:
            _log_change(report, before)
            self.ring()

    def retain(self, uids: Collection[str]) -> None:
        """All other classes are gone."""
        with self._lock:
            gone = [entry.report for uid, entry in self._entries.items() if uid not in uids]
            self._entries = {uid: entry for uid, entry in self._entries.items() if uid in uids}
        for report in gone:
            log.info("device class gone", extra={"class": report.name, "was": str(report.state)})

    def ring(self) -> None:
        """Makes `run` look at once."""
        self._bell.set()

    def run(self, stop: threading.Event) -> None:
        """The loop that writes Events; returns soon after `stop` is set and `ring` called."""
        while True:
            self._bell.clear()
            if stop.is_set():
                return
            self._clock.wait(self._bell, min(self.write(stop), _TICK))

    def write(self, stop: threading.Event) -> float:
        """Writes what is due; the seconds until more is."""
        while not stop.is_set():
            now = self._clock.monotonic()
            if now < self._not_before:
                return self._not_before - now
            with self._lock:
                entry = min(self._entries.values(), key=lambda one: one.due, default=None)
                if entry is None or entry.due > now:
                    return entry.due - now if entry else KEEP_ALIVE
                report = entry.report
            try:
                self._record(report)
            except ApiError as error:
                self._note_failure(entry, report, error)
            else:
                self._note_success(entry, report)
        return 0.0

    def _record(self, report: ClassReport) -> None:
        kind = DEVICE_CLASSES
        self._recorder.record(
            ObjectReference(kind.api_version, kind.name, report.name, report.uid),
            type="Warning" if report.state in WARNINGS else "Normal",
            reason=report.state,
            action=ACTION,
            note=report.note,
        )

    def _note_success(self, entry: _Entry, report: ClassReport) -> None:
        now = self._clock.monotonic()
        with self._lock:
            entry.written, entry.written_at = report.identity, now
            entry.due = now + (KEEP_ALIVE if entry.report.identity == report.identity else SPACING)
        self.written += 1
        self._pause = 0.0
        self._trouble.tell("")

    def _note_failure(self, entry: _Entry, report: ClassReport, error: ApiError) -> None:
        now = self._clock.monotonic()
        self.failed += 1
        if error.retryable:
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._not_before = now + self._pause
        else:
            with self._lock:
                entry.due = now + (KEEP_ALIVE if entry.report.identity == report.identity else SPACING)
        # Without the Event's name, which would make each of them a new reason.
        self._trouble.tell(f"HTTP {error.status} {error.reason}".rstrip() if error.status else str(error))


def _log_change(report: ClassReport, before: ClassReport | None) -> None:
    extra = {
        "class": report.name,
        "state": str(report.state),
        "was": str(before.state) if before else "",
        "devices": report.matching,
        "nodes": report.nodes,
        "failing": report.failing,
        "note": report.note,
    }
    log.log(logging.WARNING if report.state in WARNINGS else logging.INFO, "device class judged", extra=extra)
