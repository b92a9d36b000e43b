"""Preparing and unpreparing claims: fetch → check → plan → reserve in the journal → CDI file → answer.

The way of one claim stands in `ClaimKeeper.prepare`, top to bottom. What goes wrong with one claim is that claim's answer; the others of the call go
on. Repeating a prepare is safe at any time: the reservation is written again, the CDI file is compared and repaired. Unprepare needs nothing but the
UID and the journal.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.locks import KeyedLocks
from dra_driver.errors import ApiError, ApiNotFoundError, ClaimError, ClaimRetryError, DraError, UnsupportedRequestError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, DeviceAllocationResult, ResourceClaim
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver, Plan
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal

log = logging.getLogger(__name__)

READ_DEADLINE = 20.0  # seconds for reading all claims of a call; the kubelet gives the whole call 45
READERS = 8

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class PreparedDevice:
    """What the kubelet is told about one device."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


Prepared = tuple[PreparedDevice, ...]


@dataclass(frozen=True)
class _Planned:
    """A claim between reading and answering."""

    entry: Entry
    plan: Plan
    before: Entry | None


class ClaimKeeper:
    """Keeps the claims of one driver on one node. Safe for concurrent calls; calls about one claim come after one another."""

    def __init__(self, driver: Driver, client: Client, journal: Journal, cdi: CdiFiles, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._driver = driver
        self._client = client
        self._journal = journal
        self._cdi = cdi
        self._locks = KeyedLocks()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read-claim")

    def prepare(self, claims: Sequence[ClaimKey]) -> dict[str, Prepared | DraError]:
        """For each claim, by UID, its devices or why it could not be prepared. Bounded in time: well below the kubelet's deadline."""
        end = self._clock.monotonic() + READ_DEADLINE
        # From the first look at the claim to the last write: an unprepare that comes in between would find nothing to undo.
        with self._locks.hold(claim.uid for claim in claims):
            read = dict(zip(claims, self._read_all(claims, end), strict=True))
            outcomes: dict[str, Prepared | DraError] = {claim.uid: one for claim, one in read.items() if isinstance(one, DraError)}
            planned = [one for one in read.values() if isinstance(one, _Planned)]
            refused = self._journal.reserve([one.entry for one in planned])
            for one in planned:
                uid = one.entry.claim.uid
                outcomes[uid] = refused[uid] if uid in refused else _attempt(self._publish, one, one.entry.claim)
        for claim in claims:
            _report("prepare", claim, outcomes[claim.uid])
        return outcomes

    def unprepare(self, claims: Sequence[ClaimKey]) -> dict[str, DraError | None]:
        """For each claim, by UID, None or why it could not be unprepared. A claim that is not prepared is a success."""
        with self._locks.hold(claim.uid for claim in claims):
            outcomes: dict[str, DraError | None] = {claim.uid: _attempt(self._cdi.remove, claim, claim) for claim in claims}
            self._journal.release([uid for uid, outcome in outcomes.items() if outcome is None])
        for claim in claims:
            _report("unprepare", claim, outcomes[claim.uid])
        return outcomes

    def restore(self) -> None:
        """Repairs the CDI files of all prepared claims: the kubelet does not ask again for pods that run.

        What cannot be repaired now is logged; it stops nothing. A file of ours without an entry belongs to a container that may be alive: it stays.
        """
        entries = self._journal.entries()
        for entry in entries:
            written = _attempt(self._repair, entry, entry.claim)
            if isinstance(written, DraError):
                log.error("CDI spec of a prepared claim cannot be repaired", extra={"claim": str(entry.claim), "error": str(written)})
            elif written:
                log.warning("CDI spec of a prepared claim was missing or outdated and is written again", extra={"claim": str(entry.claim)})
        known = {entry.claim.uid for entry in entries}
        for claim in self._cdi.claims():
            if claim.uid not in known:
                log.warning("CDI spec of a claim that the journal does not know is left alone", extra={"claim": str(claim)})

    def close(self) -> None:
        """Ends the reading threads."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _read_all(self, claims: Sequence[ClaimKey], end: float) -> Iterable[_Planned | DraError]:
        def read(claim: ClaimKey) -> _Planned | DraError:
            return _attempt(lambda one: self._read(one, end), claim, claim)

        # The usual call has one claim and needs no other thread.
        return map(read, claims) if len(claims) == 1 else self._readers.map(read, claims)

    def _read(self, claim: ClaimKey, end: float) -> _Planned:
        """What the API server says about the claim, and what that means on this host."""
        left = end - self._clock.monotonic()
        if left <= 0:
            raise ClaimRetryError(f"claim {claim} cannot be read: no time is left for it in this call, the API server is slow")
        try:
            found = self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace, deadline=left)
        except ApiNotFoundError as error:
            raise ClaimError(f"claim {claim} does not exist any more; delete the pod that uses it") from error
        except ApiError as error:
            raise ClaimRetryError(f"claim {claim} cannot be read: {error}") from error
        allocation = _our_part(claim, found, self._driver.name)
        plan = self._driver.plan(allocation)
        held = tuple(
            HeldDevice(
                pool=one.result.pool,
                device=one.result.device,
                uuid=one.uuid,
                share_id=one.result.share_id or "",
                admin=bool(one.result.admin_access),
            )
            for one in plan.devices
        )
        repeated = [device for (device, _), times in Counter((one.device, one.share_id) for one in held).items() if times > 1]
        if repeated:
            raise UnsupportedRequestError(
                f"claim {claim}: status.allocation.devices.results has device {repeated[0]} more than once; that is not supported yet "
                "unless the shareIDs differ"
            )
        before = self._journal.find(claim.uid)
        _check_identity(claim, before, plan)
        return _Planned(Entry(claim, allocation, held), plan, before)

    def _repair(self, entry: Entry) -> bool:
        plan = self._driver.plan(entry.allocation)
        _check_identity(entry.claim, entry, plan)
        return self._cdi.ensure(entry.claim, plan)

    def _publish(self, planned: _Planned) -> Prepared:
        claim = planned.entry.claim
        try:
            self._cdi.ensure(claim, planned.plan)
        except DraError:
            # Nothing on the host has changed: the claim holds what it held before, which is usually nothing.
            if planned.before is None:
                self._journal.release([claim.uid])
            else:
                self._journal.reserve([planned.before])
            raise
        return tuple(
            PreparedDevice(
                requests=(device.result.request.partition("/")[0],),  # the kubelet knows no subrequests
                pool=device.result.pool,
                device=device.result.device,
                cdi_ids=(self._cdi.device_id(claim, device),),
                share_id=device.result.share_id,
            )
            for device in planned.plan.devices
        )


def _our_part(claim: ClaimKey, found: ResourceClaim, driver: str) -> DeviceAllocationResult:
    """The driver's results and configurations of the allocation; ClaimError when this is not the claim, or it has none."""
    if found.metadata.uid != claim.uid:
        raise ClaimError(f"claim {claim} was replaced by another one of that name with UID {found.metadata.uid}; delete the pod that uses it")
    allocation = found.status.allocation
    if allocation is None:
        raise ClaimRetryError(f"claim {claim} is not allocated: status.allocation is empty; the scheduler sets it")
    results = [result for result in allocation.devices.results if result.driver == driver]
    if not results:
        others = ", ".join(sorted({result.driver for result in allocation.devices.results})) or "none"
        raise ClaimError(f"claim {claim} has no device of driver {driver}: status.allocation.devices.results name {others}")
    config = [entry for entry in allocation.devices.config if entry.opaque is not None and entry.opaque.driver == driver]
    return DeviceAllocationResult(results=results, config=config)


def _check_identity(claim: ClaimKey, before: Entry | None, plan: Plan) -> None:
    """ClaimError when a device that the claim holds is another piece of hardware now."""
    held = {(one.device, one.share_id): one.uuid for one in before.devices} if before else {}
    for one in plan.devices:
        uuid = held.get((one.result.device, one.result.share_id or ""), one.uuid)
        if uuid != one.uuid:
            raise ClaimError(f"claim {claim}: device {one.result.device} was {uuid} and is {one.uuid} now; delete the pods that use the claim")


def _attempt(step: Callable[[T], R], argument: T, claim: ClaimKey) -> R | DraError:
    """The step's result or its error. A bug in a step is that claim's error as well: a panic stays in one claim."""
    try:
        return step(argument)
    except DraError as error:
        return error
    except Exception as error:
        log.exception("internal error", extra={"claim": str(claim)})
        return ClaimRetryError(f"claim {claim}: internal error, please report it: {type(error).__name__}: {error}")


def _report(operation: str, claim: ClaimKey, outcome: Prepared | DraError | None) -> None:
    about = {"operation": operation, "claim": f"{claim.namespace}/{claim.name}", "uid": claim.uid}
    if isinstance(outcome, DraError):
        log.warning("claim failed", extra=about | {"error": str(outcome)})
    else:
        log.info("claim done", extra=about | {"devices": [one.device for one in outcome or ()]})
