"""The guard: a device that another claim still holds is waited for, and is never taken away because that claim is gone from the API.

A pod that was deleted by force is gone from the API at once, its container lives on for the grace period. Only the kubelet knows when it is dead, and
says so by the unprepare. The kubelet repeats a failed prepare only after a minute or more, so waiting here is what lets the next pod start at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.errors import ApiError, ApiNotFoundError, ClaimRetryError, DeviceHeldError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, ResourceClaim
from dra_driver.kubelet.journal import Journal
from dra_driver.kubelet.observer import Observer

MOST_WAITING = 24  # calls; each takes a worker, and others must find one
POLL = 0.25  # seconds; another instance may do the unprepare, and a caller may have gone
ASK_DEADLINE = 2.0


class Guard:
    """Waits for devices to be released, and explains when they are not."""

    def __init__(self, journal: Journal, client: Client, clock: Clock | None = None, observer: Observer | None = None) -> None:
        self._journal = journal
        self._client = client
        self._clock = clock or SystemClock()
        self._observer = observer or Observer()
        self._places = threading.Semaphore(MOST_WAITING)
        self._release = threading.Condition()
        self._releases = 0

    def released(self) -> None:
        """To be called after each release: who waits looks again."""
        with self._release:
            self._releases += 1
            self._release.notify_all()

    def wait(self, held: Iterable[DeviceHeldError], end: float, given_up: Callable[[], bool]) -> bool:
        """True when one of the holders has released its devices, or holds others, since `held` was told; False at `end` (monotonic).

        False at once when `given_up`, or when too many others wait already.
        """
        began = self._clock.monotonic()
        if not self._places.acquire(blocking=False):
            self._observer.guard_wait(0.0, "crowded")
            return False
        try:
            outcome = self._wait({error.holder_uid: error.revision for error in held}, end, given_up)
        finally:
            self._places.release()
        self._observer.guard_wait(self._clock.monotonic() - began, outcome)
        return outcome == "freed"

    def explain(self, held: Sequence[DeviceHeldError], waited: float) -> list[ClaimRetryError]:
        """The errors with what the API server knows about the holders, asked for all at once: the kubelet will not wait much longer."""
        places = [error.holder.partition("/") for error in held]
        found = self._client.get_all(RESOURCE_CLAIMS, [(namespace, name) for namespace, _, name in places], deadline=ASK_DEADLINE)
        return [ClaimRetryError(f"{error}; waited {waited:.0f} s. {_about(error, holder)}") for error, holder in zip(held, found, strict=True)]

    def _wait(self, holders: Mapping[str, int], end: float, given_up: Callable[[], bool]) -> str:
        while True:
            seen = self._releases
            entries = {uid: self._journal.find(uid) for uid in holders}
            if any(entry is None or entry.revision != holders[uid] for uid, entry in entries.items()):
                return "freed"
            left = end - self._clock.monotonic()
            if left <= 0:
                return "timeout"
            if given_up():
                return "given_up"
            with self._release:
                self._release.wait_for(lambda: self._releases != seen, min(POLL, left))  # noqa: B023  called here only


def _about(held: DeviceHeldError, holder: ResourceClaim | ApiError) -> str:
    if isinstance(holder, ApiError) and not isinstance(holder, ApiNotFoundError):
        return f"Its pods are not known: {holder}"
    if isinstance(holder, ApiError) or holder.metadata.uid != held.holder_uid:
        return "That claim is deleted, but a container of it may still run until its grace period ends, as after a deletion by force"
    pods = ", ".join(f"pod {holder.metadata.namespace}/{consumer.name}" for consumer in holder.status.reserved_for) or "none"
    return f"It is reserved for: {pods}"
