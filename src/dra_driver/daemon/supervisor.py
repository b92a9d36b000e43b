"""Loops are named threads under one supervisor.

A loop is a function that takes its stop event and returns when it is set. A loop that ends with an exception is started again after a pause that
doubles up to a limit, so that one broken part never takes the process or its neighbours down. A loop looks at its stop event at every turn: that look
is its pulse, by which one that hangs is told from one that waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.probes import Probes, Pulse

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_AFTER = 60.0
STUCK = 300.0  # seconds

Loop = Callable[[threading.Event], None]


class Supervisor:
    """Starts loops, restarts broken ones, stops all of them. `probes` show the age of each; `restarts` counts, by loop."""

    def __init__(self, clock: Clock | None = None, probes: Probes | None = None) -> None:
        self.restarts: dict[str, int] = {}
        self._clock = clock or SystemClock()
        self._probes = probes
        self._stops: list[_StopEvent] = []
        self._threads: list[threading.Thread] = []
        self._wakes: list[Callable[[], None]] = []

    def start(
        self,
        name: str,
        loop: Loop,
        *,
        wake: Callable[[], None] | None = None,
        limit: float = STUCK,
        pulse: Callable[[], object] | None = None,
    ) -> None:
        """Runs `loop` in a daemon thread called `name` until `stop`; `wake` makes a loop that waits for something else look at the stop event.

        The loop counts as stuck after `limit` seconds without a look at the stop event outside of a wait for it; or, where its turns are longer,
        without a change of `pulse`.
        """
        if wake is not None:
            self._wakes.append(wake)
        stop = _StopEvent(self._clock)
        self._stops.append(stop)
        self.restarts[name] = 0
        if self._probes is not None:
            self._probes.add_loop(name, Pulse(pulse, self._clock).age if pulse else stop.age, limit=limit)
        thread = threading.Thread(target=self._run, args=(name, loop, stop), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, timeout: float) -> None:
        """Sets the stop events and waits at most `timeout` seconds in all for the loops to end."""
        for event in self._stops:
            event.set()
        for wake in self._wakes:
            wake()
        deadline = self._clock.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            log.warning("loops did not end in time", extra={"loops": late})

    def _run(self, name: str, loop: Loop, stop: _StopEvent) -> None:
        stop.owner = threading.get_ident()
        pause = FIRST_PAUSE
        while not stop.is_set():
            started = self._clock.monotonic()
            try:
                loop(stop)
            except Exception:
                if self._clock.monotonic() - started > HEALTHY_AFTER:
                    pause = FIRST_PAUSE
                self.restarts[name] += 1
                log.exception("loop failed, will be restarted", extra={"loop": name, "pause_s": pause})
                self._clock.wait(stop, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if not stop.is_set():
                    self.restarts[name] += 1
                    log.error("loop ended early, will be restarted", extra={"loop": name})
                    self._clock.wait(stop, pause)


class _StopEvent(threading.Event):
    """The stop event of one loop; it knows when the loop's thread, `owner`, last looked at it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.owner: int | None = None
        self._clock = clock
        self._looked = clock.monotonic()
        self._waiting = False

    def age(self) -> float:
        """Seconds since the last look; 0 while the loop waits for this event."""
        return 0.0 if self._waiting else self._clock.monotonic() - self._looked

    def is_set(self) -> bool:
        if threading.get_ident() == self.owner:
            self._looked = self._clock.monotonic()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        if threading.get_ident() != self.owner:
            return super().wait(timeout)
        self._waiting = True
        try:
            return super().wait(timeout)
        finally:
            self._looked = self._clock.monotonic()
            self._waiting = False
