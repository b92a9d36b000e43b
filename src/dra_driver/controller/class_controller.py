"""DeviceClasses and ResourceSlices followed, and every class judged again whenever something has changed.

Level-triggered: the watches are only a bell, each pass reads the whole store. Nothing is kept that could not be made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dra_driver.controller.announcer import Announcer
from dra_driver.controller.deviceclasses import Judge
from dra_driver.controller.report import ClassReport
from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.probes import Probes
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.k8s.client import Client
from dra_driver.k8s.events import EventRecorder
from dra_driver.k8s.objects.meta import Object
from dra_driver.k8s.objects.resource import DEVICE_CLASSES, RESOURCE_SLICES
from dra_driver.k8s.reflector import Reflector

REPORTING_CONTROLLER = "dra-driver-controller"
DEBOUNCE = 0.5
"""Seconds from the first change to the pass, so that a burst of changes costs one."""

SILENT = 240.0
"""Seconds without a word from the API server after which what we know may be old; bookmarks come every minute."""

_TICK = 1.0


class ClassController:
    """`reports` is what is known, by class name. `passes` counts, `pass_seconds` is the time that they took."""

    def __init__(self, client: Client, *, debounce: float = DEBOUNCE, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._debounce = debounce
        self._bell = threading.Event()
        self.classes = Reflector(client, DEVICE_CLASSES, self._on_change, clock=self._clock)
        self.slices = Reflector(client, RESOURCE_SLICES, self._on_change, clock=self._clock)
        self.judge = Judge()
        self.announcer = Announcer(EventRecorder(client, REPORTING_CONTROLLER, clock=self._clock), self._clock)
        self.reports: dict[str, ClassReport] = {}
        self.passes = 0
        self.pass_seconds = 0.0

    def start(self, supervisor: Supervisor) -> None:
        """Four loops: two watches, the passes, the Events."""
        supervisor.start("watch-deviceclasses", self.classes.run, pulse=_counters(self.classes))
        supervisor.start("watch-resourceslices", self.slices.run, pulse=_counters(self.slices))
        supervisor.start("classes", self.run, wake=self._bell.set)
        supervisor.start("events", self.announcer.run, wake=self.announcer.ring)

    def add_to(self, probes: Probes) -> None:
        """What /readyz looks at; the loops are the supervisor's to tell of."""
        for name, reflector in (("DeviceClasses", self.classes), ("ResourceSlices", self.slices)):
            probes.add_condition(name, _why_unready(reflector))
        probes.add_condition("reports", lambda: "" if self.passes else "the first pass over all classes is not finished")

    def run(self, stop: threading.Event) -> None:
        """The loop of passes; returns soon after `stop` is set and the bell rung. The first pass waits for both lists."""
        changed = True
        while True:
            self._bell.clear()
            if stop.is_set():
                return
            if changed and self.classes.synced.is_set() and self.slices.synced.is_set():
                self._pass(stop)
                changed = False
            if self._clock.wait(self._bell, _TICK):
                changed = True
                self._clock.wait(stop, self._debounce)

    def _on_change(self, old: Object | None, new: Object | None) -> None:
        del old, new
        self._bell.set()

    def _pass(self, stop: threading.Event) -> None:
        began = self._clock.monotonic()
        classes = list(self.classes.items().values())
        for report in self.judge.judge(classes, self.slices.items().values()):
            if stop.is_set():
                return
            self.reports = self.reports | {report.name: report}
            self.announcer.tell(report)
        present = {one.metadata.name: one.metadata.uid for one in classes}
        self.reports = {name: report for name, report in self.reports.items() if name in present}
        self.announcer.retain(present.values())
        self.pass_seconds += self._clock.monotonic() - began
        self.passes += 1


def _counters(reflector: Reflector[Any]) -> Callable[[], object]:
    return lambda: (reflector.lists, reflector.watches, reflector.events, reflector.failures)


def _why_unready(reflector: Reflector[Any]) -> Callable[[], str]:
    def reason() -> str:
        if not reflector.synced.is_set():
            return f"not listed yet, {reflector.failures} attempts failed"
        return f"the API server has said nothing for {reflector.age():.0f} s" if reflector.age() > SILENT else ""

    return reason
