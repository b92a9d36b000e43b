"""Prepared claims keep what their containers need: lost CDI specs are written again within a second, and outdated ones when the host has changed.

The kubelet does not ask again for a pod that runs, so a container that restarts after the CDI directory was emptied, or the driver was installed
anew, would not find its device. We look once a second: a look is a few system calls, and inotify would not see another file system that is mounted
over a directory. What a look cannot see, such as a spec that was overwritten, is for the sweep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver

PERIOD = 1.0


class HostWatch:
    """Calls `repair` when specs of `cdi` are lost, or the driver's `host_stamp` has become another. Make it before what is there is verified."""

    def __init__(self, driver: Driver, cdi: CdiFiles, repair: Callable[[], None], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._driver = driver
        self._cdi = cdi
        self._repair = repair
        self._verified = driver.host_stamp()
        self._seen = self._verified

    def run(self, stop: threading.Event) -> None:
        """A loop."""
        while not self._clock.wait(stop, PERIOD):
            self.look()

    def look(self) -> None:
        """One look. A change counts when it is over, seen the same twice: while a driver is being installed half of its files are missing."""
        now, before = self._driver.host_stamp(), self._seen
        self._seen = now
        changed = now == before and now != self._verified
        if self._cdi.lost() or changed:
            self._repair()
            if changed:
                self._verified = now
