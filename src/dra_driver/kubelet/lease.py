"""The lease: of the instances that live, one publishes, sweeps and watches health; the others only serve.

It is the newest instance that the kubelet has accepted, so that what a new version publishes replaces what the old one did, once. "Newest" is the
order of the starts and not of the registrations: the kubelet asks all instances again after its own restart, in any order. The holder stands in the
journal's file; whether it is alive is asked of the kernel. Where nobody lives who holds it, an instance takes it before it is registered, since the
first slices must not wait for the kubelet.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.errors import JournalError
from dra_driver.kubelet.database import Database

log = logging.getLogger(__name__)

PERIOD = 0.5  # seconds after which the death of a holder is noticed


class Lease:
    """The claim of instance `uid` to the lease. `lives` tells of another one whether it is alive, `registered` whether the kubelet has accepted us.

    `changed` is called when the lease was won or lost.
    """

    def __init__(
        self,
        database: Database,
        uid: str,
        *,
        lives: Callable[[str], bool],
        registered: Callable[[], bool],
        changed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._uid = uid
        self._lives = lives
        self._registered = registered
        self._changed = changed
        self._clock = clock or SystemClock()
        self._started = time.clock_gettime(time.CLOCK_BOOTTIME)  # the same clock for all processes of the host, and nobody can set it
        self._bell = threading.Event()
        self._trouble = Trouble(log, "the lease cannot be read or written, will be tried again", "the lease can be used again", instance=uid)
        self.held = False
        """Whether it was ours when it was last looked at."""

    def problem(self) -> str:
        """Why this instance does not do what it should, "" if it leads or another one rightly does."""
        try:
            with self._database.reading() as connection:
                holder, since = _holder(connection)
        except JournalError as error:
            return str(error)
        ours_to_take = holder != self._uid and self._is_our_turn(holder, since)
        return "the lease is ours to take and not taken yet" if ours_to_take else ""

    def leads(self) -> bool:
        """Whether this instance holds the lease now; one cheap read. False when it cannot be read."""
        try:
            with self._database.reading() as connection:
                return self._note(_holder(connection)[0] == self._uid)
        except JournalError as error:
            self._trouble.tell(str(error))
            return False

    def run(self, stop: threading.Event) -> None:
        """A loop: takes the lease when it is our turn."""
        while not stop.is_set():
            self.take()
            self._clock.wait(self._bell, PERIOD)
            self._bell.clear()

    def ring(self) -> None:
        """Lets `run` look at once, such as when the kubelet has accepted us."""
        self._bell.set()

    def take(self) -> bool:
        """Takes the lease if it is our turn; tells whether we hold it now."""
        try:
            with self._database.reading() as connection:
                found = _holder(connection)
            # Our own from before the machine was booted, when clocks were further on, would outlast every newer instance.
            ours = found[0] == self._uid and found[1] <= self._started
            ours = ours or (self._is_our_turn(*found) and self._database.write(self._replace(found)))
        except JournalError as error:
            self._trouble.tell(str(error))
            return False
        return self._note(ours)

    def release(self) -> None:
        """Leaves it to the others, if it is ours."""
        try:
            self._database.write(lambda connection: connection.execute("DELETE FROM lease WHERE instance = ?", (self._uid,)))
        except JournalError as error:  # our lock goes with us, and that is what they ask
            self._trouble.tell(str(error))
        self._note(ours=False)

    def _is_our_turn(self, holder: str, since: float) -> bool:
        return holder in {"", self._uid} or not self._lives(holder) or (self._registered() and since < self._started)

    def _replace(self, found: tuple[str, float]) -> Callable[[sqlite3.Connection], bool]:
        def change(connection: sqlite3.Connection) -> bool:
            if _holder(connection) != found:
                return False  # somebody was first: look again
            connection.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (self._uid, self._started))
            return True

        return change

    def _note(self, ours: bool) -> bool:
        self._trouble.tell("")
        if ours != self.held:
            self.held = ours
            log.info("this instance leads now" if ours else "another instance leads now", extra={"instance": self._uid})
            self._changed()
        return ours


def _holder(connection: sqlite3.Connection) -> tuple[str, float]:
    """Who holds it, and when that instance started; nobody is ""."""
    return connection.execute("SELECT instance, since FROM lease").fetchone() or ("", 0.0)
