"""Rebuilding the journal when it was lost: a device that a container may be using must not be given to another claim.

What is known elsewhere, the best source first: the annotations of our CDI spec files, each about one claim; the kubelet's list of running pods, for
claims whose file is lost as well; and the API server, which is asked for each of these claims by name (a node never lists claims) and knows requests
and configurations. A claim that the API server does not know any more may still have a living container: it is held as far as it is known, until the
kubelet unprepares it or the sweep finds that nobody uses it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dra_driver.daemon.turns import Turns
from dra_driver.errors import ApiDeniedError, ApiError, ApiNotFoundError, ClaimError, DraError, HostError, StoppedError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal, each_once
from dra_driver.kubelet.metadata import POD_CLAIM_NAME
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.pod_resources import PodClaim, claims_of_pods
from dra_driver.kubelet.reading import our_part

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_DEADLINE = 5.0
ASIDE = 5.0  # seconds for another instance that is at work on the claim
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts while the API server does not answer


class Rebuild:
    """Brings claims that hold devices back into the journal. `pod_resources` is the kubelet's socket, None where there is none."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        journal: Journal,
        cdi: CdiFiles,
        turns: Turns,
        *,
        pod_resources: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._driver = driver
        self._client = client
        self._journal = journal
        self._cdi = cdi
        self._turns = turns
        self._pod_resources = pod_resources
        self._observer = observer or Observer()
        self.problem = ""
        """Why `run` does not go on at the moment."""

    def run(self, pause: Callable[[float], bool]) -> None:
        """Returns when no claim is missing that can be known. Costs next to nothing when none is.

        The journal is a new one, or a spec has no entry in it. An interrupted run is taken up by the next. As long as the API server does not tell,
        it is asked again: a device may be in use by a claim that only it knows. `pause` waits so many seconds and returns whether the program is to
        end; StoppedError is raised then.
        """
        specs = list(self._cdi.entries())  # before the journal: an entry comes before its spec, and goes after it
        known = {entry.claim.uid for entry in self._journal.entries()}
        for spec in specs:
            if spec.claim.uid not in known:
                self._adopt(self._patiently(self._of_spec, spec, pause), from_spec=True)
        if self._journal.is_incomplete():
            for claim in self._claims_of_pods():
                self._adopt(self._patiently(self._of_pods, claim, pause), from_spec=False)
            self._journal.complete()

    def _patiently(self, step: Callable[[T], Entry | None], about: T, pause: Callable[[float], bool]) -> Entry | None:
        length = FIRST_PAUSE
        while True:
            try:
                entry = step(about)
            except ApiError as error:
                if not self.problem:
                    log.warning("the journal cannot be rebuilt yet, the API server does not tell of a claim", extra={"error": str(error)})
                self.problem = f"the journal is being rebuilt, and the API server does not tell of a claim: {error}"
            else:
                if self.problem:
                    log.info("the API server tells of claims again, the journal is being rebuilt")
                self.problem = ""
                return entry
            if pause(length * random.uniform(0.8, 1.2)):  # noqa: S311  not for secrets
                raise StoppedError(f"stopped; {self.problem}")
            length = min(length * 2, LONGEST_PAUSE)

    def _of_spec(self, spec: Entry) -> Entry | None:
        """What the claim of a spec holds. What the spec says counts, also where the claim was allocated anew since."""
        found = self._get(spec.claim)
        allocation = None if found is None else self._part(spec.claim, found)
        if spec.devices:
            same = allocation is not None and _places(allocation.results) == _places(spec.allocation.results)
            return replace(spec, allocation=allocation) if allocation is not None and same else spec
        if found is None or allocation is None:  # and the spec is of a version that did not note devices
            log.error("a claim has a CDI spec, but nobody knows any more what it holds", extra={"claim": str(spec.claim)})
            return None
        return self._entry(spec.claim, allocation, found)

    def _of_pods(self, claim: PodClaim) -> Entry | None:
        """What a claim holds that the kubelet has prepared; None when the journal knows it."""
        uid = min(self._uids(claim), key=len, default="")
        key = ClaimKey(claim.namespace, claim.name, uid) if uid else ClaimKey.without_uid(claim.namespace, claim.name)
        if any((one.claim == key) if uid else (one.claim.namespace, one.claim.name) == (key.namespace, key.name) for one in self._journal.entries()):
            return None
        found = self._get(key)
        if found is not None:
            stored = ClaimKey(claim.namespace, claim.name, uid or found.metadata.uid)
            allocation = self._part(stored, found)
            if allocation is not None and _places(claim.results) <= _places(allocation.results):
                return self._entry(stored, allocation, found)
        return self._entry(key, DeviceAllocationResult(results=list(claim.results)))

    def _claims_of_pods(self) -> list[PodClaim]:
        if self._pod_resources is None:
            return []
        try:
            return claims_of_pods(self._pod_resources, self._driver.name)
        except HostError as error:
            log.warning("claims of running pods are not known if their CDI spec is lost as well", extra={"error": str(error)})
            return []

    def _uids(self, claim: PodClaim) -> Iterable[str]:
        """What may be the claim's UID: our CDI names have it. One device's name may end as another's, then the right UID is the shortest."""
        named = (self._cdi.claim_uid(one, result.device, result.share_id) for one in claim.device_ids for result in claim.results)
        return filter(None, named)

    def _get(self, claim: ClaimKey) -> ResourceClaim | None:
        """None when there is none, and when asking again would give nothing else. Raises ApiError when it might."""
        if not claim.name:
            return None  # a spec that does not tell it
        try:
            return self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace, deadline=CALL_DEADLINE)
        except ApiNotFoundError:
            return None
        except ApiError as error:
            if error.retryable or isinstance(error, ApiDeniedError):
                raise
            log.warning(
                "a claim cannot be read from the API server, what else is known of it counts", extra={"claim": str(claim), "error": str(error)}
            )
            return None

    def _part(self, claim: ClaimKey, found: ResourceClaim) -> DeviceAllocationResult | None:
        """None when this is another claim, or has no device of ours."""
        try:
            return our_part(claim, found, self._driver.name)
        except ClaimError:
            return None

    def _entry(self, claim: ClaimKey, allocation: DeviceAllocationResult, found: ResourceClaim | None = None) -> Entry:
        devices = each_once(self._held(claim, result) for result in allocation.results)
        return Entry(claim, allocation, devices, pod_claim=found.metadata.annotations.get(POD_CLAIM_NAME, "") if found else "")

    def _held(self, claim: ClaimKey, result: DeviceRequestAllocationResult) -> HeldDevice:
        """By its name when the driver does not know the device, or cannot use it now."""

        def uuid(one: DeviceRequestAllocationResult) -> str:
            return self._driver.plan(DeviceAllocationResult(results=[one])).devices[0].uuid

        found = attempt(claim, uuid, result)
        if isinstance(found, DraError):
            about = {"claim": str(claim), "pool": result.pool, "device": result.device, "error": str(found)}
            log.error("a claim holds a device that this driver cannot tell; nobody else gets one of that name", extra=about)
            self._observer.journal("unknown_device")
            found = HeldDevice.of(result, "").by_name
        return HeldDevice.of(result, found)

    def _adopt(self, entry: Entry | None, *, from_spec: bool) -> None:
        if entry is None:
            return
        claim = entry.claim
        with self._turns.hold([claim.uid], ASIDE) as busy:
            if busy or self._journal.find(claim.uid) is not None or (from_spec and not self._cdi.path(claim).exists()):
                return  # another instance prepares or unprepares it, or has done so meanwhile
            doubly = self._journal.adopt(entry)
        about = {"claim": str(claim), "devices": [held.device for held in entry.devices], "source": "CDI spec" if from_spec else "kubelet"}
        log.warning("claim was not in the journal and is in it again", extra=about)
        if doubly is not None:
            log.error("a device is held by two claims; nobody else gets it until both are unprepared", extra={"error": str(doubly)})
        self._observer.journal("rebuilt")


def _places(results: Iterable[DeviceRequestAllocationResult]) -> set[tuple[str, str, str]]:
    return {(one.pool, one.device, one.share_id or "") for one in results}
