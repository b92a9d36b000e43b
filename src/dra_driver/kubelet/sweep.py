"""The sweep: frees what is held by claims that are gone and that nobody will ever unprepare.

The kubelet forgets a claim when it loses its own checkpoint, or when the node was away while the pod and the claim were deleted. Then no unprepare
comes, and the device would be lost. But absence from the API alone never frees a device: the claim must be absent in two rounds that are longer apart
than a container may take to end, this node must be known to the API server that says so, no pod that the kubelet runs may have the claim, and no
process the device open.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.errors import ApiError, ApiNotFoundError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.claims import ClaimKeeper
from dra_driver.kubelet.device_users import DeviceUsers
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.journal import Entry, Journal
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.pod_resources import PodClaim

log = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds between rounds at most, and up to a fifth more or less
GRACE = 300.0  # seconds for which a claim must have been absent; ten times a pod's usual grace period
MOST_RELEASES = 4  # in a round, so that a mistake of ours, or of an API server, is noticed before it frees everything
CALL_DEADLINE = 10.0


@dataclass
class _Absence:
    """A row whose claim was not there: since when, by the monotonic clock, and in how many rounds."""

    revision: int
    since: float
    rounds: int = 1


class Sweep:
    """Looks at all prepared claims of `driver` on `node`. `leads` tells whether this instance is the one to do it.

    `pods` gives the claims of running pods as the kubelet knows them; without it only processes tell that a device is used.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        journal: Journal,
        keeper: ClaimKeeper,
        users: DeviceUsers,
        *,
        node: str,
        leads: Callable[[], bool] = lambda: True,
        grace: float = GRACE,
        pods: Callable[[], Collection[PodClaim]] | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._driver = driver
        self._client = client
        self._journal = journal
        self._keeper = keeper
        self._users = users
        self._node = node
        self._leads = leads
        self._grace = grace
        self._pods = pods
        self._interval = min(INTERVAL, grace / 2)
        self._clock = clock or SystemClock()
        self._observer = observer or Observer()
        self._absent: dict[str, _Absence] = {}

    def run(self, stop: threading.Event) -> None:
        """A loop: a round at once, then one now and then."""
        while not stop.is_set():
            if self._leads():
                self.round()
            self._clock.wait(stop, self._interval * random.uniform(0.8, 1.2))  # noqa: S311  not for secrets

    def round(self) -> None:
        """Repairs CDI specs, then looks for each prepared claim once. Ends early when the API server is away."""
        self._keeper.repair()
        entries = self._journal.entries()
        self._absent = {entry.claim.uid: self._absent[entry.claim.uid] for entry in entries if entry.claim.uid in self._absent}
        candidates = []
        for entry in entries:
            try:
                present = self._is_present(entry)
            except ApiError as error:
                log.warning("sweep: the API server cannot tell, nothing is concluded", extra={"claim": str(entry.claim), "error": str(error)})
                self._observer.sweep("unknown")
                if error.retryable:
                    return
                continue
            if present:
                self._absent.pop(entry.claim.uid, None)
                self._observer.sweep("kept")
            elif self._is_absent_for_long(entry):
                candidates.append(entry)
        if candidates and self._is_our_cluster():
            released = 0
            for entry in self._without_pods(candidates):
                if released < MOST_RELEASES:
                    released += self._release(entry)

    def _is_present(self, entry: Entry) -> bool:
        """Whether the claim exists with our devices. ApiError proves nothing."""
        claim = entry.claim
        try:
            found = self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace, deadline=CALL_DEADLINE)
        except ApiNotFoundError as error:
            if f'"{claim.name}" not found' in error.message:
                return False
            raise  # of the API and not of the claim: a server without resource.k8s.io/v1, or something else in its place
        if found.metadata.uid != claim.uid or found.status.allocation is None:
            return False
        pools = {device.pool for device in entry.devices}
        return any(result.driver == self._driver.name and result.pool in pools for result in found.status.allocation.devices.results)

    def _is_absent_for_long(self, entry: Entry) -> bool:
        now = self._clock.monotonic()
        absence = self._absent.get(entry.claim.uid)
        if absence is None or absence.revision != entry.revision:
            self._absent[entry.claim.uid] = _Absence(entry.revision, now)
            log.info("sweep: prepared claim is not in the API, waiting for the kubelet to unprepare it", extra={"claim": str(entry.claim)})
            self._observer.sweep("absent")
            return False
        absence.rounds += 1
        if now - absence.since < self._grace:
            self._observer.sweep("absent")
            return False
        return True

    def _is_our_cluster(self) -> bool:
        """An API server that does not even know this node says nothing about claims."""
        try:
            self._client.get(NODES, self._node, deadline=CALL_DEADLINE)
        except ApiError as error:
            log.warning("sweep: the API server does not tell of this node, nothing is released", extra={"node": self._node, "error": str(error)})
            self._observer.sweep("unknown")
            return False
        return True

    def _without_pods(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Those that no running pod has, as far as the kubelet tells: a container may have a device without having it open."""
        try:
            used = {(one.namespace, one.name) for one in self._pods()} if self._pods else set()
        except DraError as error:
            log.warning("sweep: the kubelet cannot tell, nothing is released", extra={"error": str(error)})
            self._observer.sweep("unknown")
            return []
        busy = [entry for entry in candidates if (entry.claim.namespace, entry.claim.name) in used]
        for entry in busy:
            log.warning("sweep: prepared claim is gone, but a running pod has it; its devices stay reserved", extra={"claim": str(entry.claim)})
            self._observer.sweep("busy")
        return [entry for entry in candidates if entry not in busy]

    def _release(self, entry: Entry) -> bool:
        """Whether its devices are free now."""
        about = {"claim": str(entry.claim), "devices": [held.device for held in entry.devices]}
        outcome = attempt(entry.claim, lambda one: self._keeper.release(one, lambda: self._is_unused(one)), entry)
        if outcome is None:
            log.warning("sweep: prepared claim is gone and nobody uses its devices, they are free again", extra=about)
            self._observer.sweep("released")
            self._absent.pop(entry.claim.uid, None)
        elif outcome is False:
            log.warning("sweep: prepared claim is gone, but its devices are in use or it changed; they stay reserved", extra=about)
            self._observer.sweep("busy")
        else:
            log.error("sweep: prepared claim is gone, but its devices cannot be freed", extra=about | {"error": str(outcome)})
            self._observer.sweep("failed")
        return outcome is None

    def _is_unused(self, entry: Entry) -> bool:
        """Asked in the claim's turn. Raises DraError when it cannot be told."""
        nodes = [node for device in self._driver.plan(entry.allocation).devices for node in device.edits.device_nodes]
        users = self._users.find(nodes)
        if users:
            log.warning("sweep: processes have the device of a claim open that is gone", extra={"claim": str(entry.claim), "processes": users})
        return not users and not self._is_present(entry)
