"""Reading claims: what the API server says about a claim, and what that means on this host. Changes nothing and holds no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from dra_driver.daemon.clock import Clock
from dra_driver.errors import ApiError, ApiNotFoundError, ClaimError, ClaimRetryError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, DeviceAllocationResult, ResourceClaim
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.driver import Driver, Plan
from dra_driver.kubelet.journal import ClaimKey, Entry, HeldDevice, each_once
from dra_driver.kubelet.metadata import POD_CLAIM_NAME


class Planned(msgspec.Struct, frozen=True):
    """A claim that was read: what it is to hold, and the driver's plan for it."""

    entry: Entry
    plan: Plan


class ClaimReader:
    """Reads claims of one driver."""

    def __init__(self, driver: Driver, client: Client, clock: Clock) -> None:
        self._driver = driver
        self._client = client
        self._clock = clock

    def read(self, claims: Sequence[ClaimKey], end: float) -> dict[ClaimKey, Planned | DraError]:
        """All claims, asked for at the same time, until the monotonic time `end`."""
        left = end - self._clock.monotonic()
        if left <= 0:
            return {
                claim: ClaimRetryError(f"claim {claim} cannot be read: no time is left for it in this call, the API server is slow")
                for claim in claims
            }
        found = self._client.get_all(RESOURCE_CLAIMS, [(claim.namespace, claim.name) for claim in claims], deadline=left)
        answers = dict(zip(claims, found, strict=True))
        return {claim: attempt(claim, lambda key: self._planned(key, answers[key]), claim) for claim in claims}

    def plan(self, claim: ClaimKey, allocation: DeviceAllocationResult, pod_claim: str = "") -> Planned:
        """What an allocation (this driver's part of it) means on this host. `pod_claim` is as in an entry of the journal."""
        plan = self._driver.plan(allocation)
        _check(claim, allocation, plan)
        return Planned(Entry(claim, allocation, _held(claim, plan), pod_claim=pod_claim), plan)

    def _planned(self, claim: ClaimKey, found: ResourceClaim | ApiError) -> Planned:
        if isinstance(found, ApiNotFoundError):
            raise ClaimError(f"claim {claim} does not exist any more; delete the pod that uses it") from found
        if isinstance(found, ApiError):
            raise ClaimRetryError(f"claim {claim} cannot be read: {found}") from found
        return self.plan(claim, our_part(claim, found, self._driver.name), found.metadata.annotations.get(POD_CLAIM_NAME, ""))


def _check(claim: ClaimKey, allocation: DeviceAllocationResult, plan: Plan) -> None:
    """A plan that leaves out a result would start the pod without the device, and let others have it."""
    left = list(allocation.results)
    for device in plan.devices:
        name = f"{device.result.pool}/{device.result.device} of request {device.result.request}"
        if device.result not in left:
            raise ClaimError(
                f"claim {claim}: the driver's plan has device {name}, which is not allocated, or has it twice; Driver.plan answers each result once"
            )
        if not device.uuid:
            raise ClaimError(f"claim {claim}: the driver's plan has device {name} without a uuid; it must be what identifies the device on this node")
        left.remove(device.result)
    if left:
        name = f"{left[0].pool}/{left[0].device} of request {left[0].request}"
        raise ClaimError(f"claim {claim}: the driver's plan has no device {name}, which is allocated; Driver.plan answers each result once")


def _held(claim: ClaimKey, plan: Plan) -> tuple[HeldDevice, ...]:
    """Each device once. Several requests may have the same one, if all but one of them have it with admin access."""
    held = [HeldDevice.of(one.result, one.uuid) for one in plan.devices]
    wanted = Counter((one.pool, one.device, one.share_id) for one in held if not one.admin)
    if repeated := [device for (_, device, _), times in wanted.items() if times > 1]:
        raise ClaimError(
            f"claim {claim}: status.allocation.devices.results has device {repeated[0]} more than once, without admin access and different shareIDs; "
            "no scheduler should allocate so, delete the claim"
        )
    by_uuid: dict[str, HeldDevice] = {}
    for device in held:
        other = device if device.admin else by_uuid.setdefault(device.uuid, device)
        if other != device and (other.exclusive or device.exclusive):
            raise ClaimError(
                f"claim {claim}: devices {other.device} and {device.device} of it are one and the same ({device.uuid}); delete the claim"
            )
    return each_once(held)


def our_part(claim: ClaimKey, found: ResourceClaim, driver: str) -> DeviceAllocationResult:
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
