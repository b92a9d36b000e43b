"""Loops are named threads under one supervisor.

A loop is a function that takes the stop event and returns when it is set. A loop that ends with an exception is started again after a pause that
doubles up to a limit, so that one broken part never takes the process or its neighbours down.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dra_driver.daemon.clock import Clock, SystemClock

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_AFTER = 60.0

Loop = Callable[[threading.Event], None]


class Supervisor:
    """Starts loops, restarts broken ones, stops all of them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._wakes: list[Callable[[], None]] = []

    def start(self, name: str, loop: Loop, *, wake: Callable[[], None] | None = None) -> None:
        """Runs `loop` in a daemon thread called `name` until `stop`; `wake` makes a loop that waits for something else look at the stop event."""
        if wake is not None:
            self._wakes.append(wake)
        thread = threading.Thread(target=self._run, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, timeout: float) -> None:
        """Sets the stop event and waits at most `timeout` seconds in all for the loops to end."""
        self._stop.set()
        for wake in self._wakes:
            wake()
        deadline = self._clock.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            log.warning("loops did not end in time", extra={"loops": late})

    def _run(self, name: str, loop: Loop) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            started = self._clock.monotonic()
            try:
                loop(self._stop)
            except Exception:
                if self._clock.monotonic() - started > HEALTHY_AFTER:
                    pause = FIRST_PAUSE
                log.exception("loop failed, will be restarted", extra={"loop": name, "pause_s": pause})
                self._clock.wait(self._stop, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if not self._stop.is_set():
                    log.error("loop ended early, will be restarted", extra={"loop": name})
                    self._clock.wait(self._stop, pause)
