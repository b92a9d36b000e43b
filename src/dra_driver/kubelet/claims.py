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

from dra_driver.daemon.locks import KeyedLocks
from dra_driver.errors import ApiError, ApiNotFoundError, ClaimError, ClaimRetryError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, DeviceAllocationResult, ResourceClaim
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver, Plan
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, Journal

log = logging.getLogger(__name__)

FETCH_DEADLINE = 20.0  # seconds; the kubelet gives the whole call 45
FETCHERS = 8

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


class ClaimKeeper:
    """Keeps the claims of one driver on one node. Safe for concurrent calls; calls about one claim come after one another."""

    def __init__(self, driver: Driver, client: Client, journal: Journal, cdi: CdiFiles) -> None:
        self._driver = driver
        self._client = client
        self._journal = journal
        self._cdi = cdi
        self._locks = KeyedLocks()
        self._readers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="read-claim")

    def prepare(self, claims: Sequence[ClaimKey]) -> dict[str, Prepared | DraError]:
        """For each claim, by UID, its devices or why it could not be prepared."""
        outcomes: dict[str, Prepared | DraError] = {}
        planned: list[_Planned] = []
        for claim, read in zip(claims, self._read_all(claims), strict=True):
            if isinstance(read, DraError):
                outcomes[claim.uid] = read
            else:
                planned.append(read)
        with self._locks.hold(one.entry.claim.uid for one in planned):
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
        """Repairs the CDI files of all prepared claims: the kubelet does not ask again for pods that run. Our files of other claims are removed."""
        entries = {entry.claim.uid: entry for entry in self._journal.entries()}
        for claim in list(self._cdi.claims()):
            if claim.uid not in entries:
                log.warning("CDI spec of a claim that is not prepared is removed", extra={"claim": str(claim)})
                self._cdi.remove(claim)
        for entry in entries.values():
            try:
                if self._cdi.ensure(entry.claim, self._driver.plan(entry.allocation)):
                    log.warning("CDI spec of a prepared claim was missing or outdated and is written again", extra={"claim": str(entry.claim)})
            except DraError as error:
                log.error("CDI spec of a prepared claim cannot be repaired", extra={"claim": str(entry.claim), "error": str(error)})  # noqa: TRY400

    def close(self) -> None:
        """Ends the reading threads."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _read_all(self, claims: Sequence[ClaimKey]) -> Iterable[_Planned | DraError]:
        if len(claims) == 1:  # the usual call needs no other thread
            return [_attempt(self._read, claims[0], claims[0])]
        return self._readers.map(lambda claim: _attempt(self._read, claim, claim), claims)

    def _read(self, claim: ClaimKey) -> _Planned:
        """What the API server says about the claim, and what that means on this host."""
        try:
            found = self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace, deadline=FETCH_DEADLINE)
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
                exclusive=not one.result.share_id and not one.result.admin_access,
            )
            for one in plan.devices
        )
        repeated = [device for (device, _), times in Counter((one.device, one.share_id) for one in held).items() if times > 1]
        if repeated:
            raise ClaimError(f"claim {claim}: status.allocation.devices.results has device {repeated[0]} more than once without different shareIDs")
        return _Planned(Entry(claim, allocation, held), plan)

    def _publish(self, planned: _Planned) -> Prepared:
        claim = planned.entry.claim
        try:
            self._cdi.ensure(claim, planned.plan)
        except DraError:
            # Nothing on the host has changed for this claim, so its devices are free again.
            self._journal.release([claim.uid])
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
