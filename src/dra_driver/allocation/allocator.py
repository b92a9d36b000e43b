"""First fit: which free devices of a node a claim gets, and what the scheduler would write into its status.

Devices are tried in the order of pools, slices and devices; the first combination that satisfies all requests wins, so a device that an earlier
request could take is left to a later one that needs it. Selectors are evaluated only when the search comes to a device, as in the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dra_driver.allocation.matching import claim_name, matches, report
from dra_driver.allocation.pools import Candidate, DeviceId, Pool, gather_pools
from dra_driver.errors import ClaimError, ClaimRetryError, NoFitError, UnsupportedRequestError
from dra_driver.k8s.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_driver.k8s.objects.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)

MAX_RESULTS = 32
"""Devices of one claim (`AllocationResultsMaxSize`)."""

_LIMIT = 100_000
"""Combinations, complete or not, that the search looks at. The scheduler's limit is a time: `filterTimeout`, by default 10 s for each node."""


def allocate(
    claim: ResourceClaim,
    slices: Iterable[ResourceSlice],
    classes: Mapping[str, DeviceClass],
    *,
    node: str,
    in_use: Collection[tuple[str, str, str]] = (),
) -> AllocationResult:
    """The allocation of the claim on a node; `classes` by name, `in_use` as (driver, pool, device), see `devices_in_use`.

    Raises NoFitError when the devices do not suffice, UnsupportedRequestError for a field that is not supported yet, and ClaimError where the
    scheduler gives up the pod: a missing class, a selector that does not compile or that fails on a device it comes to. ClaimRetryError, where
    there are more combinations than can be tried.
    """
    wanted = _wanted(claim, classes)
    pools = gather_pools(slices, node)
    search = _Search(claim, wanted, [candidate for pool in pools for candidate in pool.candidates()], frozenset(in_use))
    if not search.run():
        found = f"claim {claim_name(claim)}: no fit on node {node}"
        if search.steps > _LIMIT:
            raise ClaimRetryError(f"{found} within {_LIMIT} combinations (the scheduler gives up after 10 s): {_why(search, pools)}")
        raise NoFitError(f"{found}: {_why(search, pools)}")
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[
                DeviceRequestAllocationResult(request=request.name, driver=candidate.id.driver, pool=candidate.id.pool, device=candidate.id.device)
                for request, candidate in search.taken
            ],
            config=_config(claim, wanted),
        ),
        node_selector=_node_selector([candidate for _, candidate in search.taken], node),
    )


def devices_in_use(claims: Iterable[ResourceClaim]) -> set[DeviceId]:
    """The devices that allocated claims hold; admin access holds none."""
    return {
        DeviceId(result.driver, result.pool, result.device)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    }


# What the claim wants ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanted:
    """One request of the claim, ready to be searched for."""

    name: str
    count: int
    request: ExactDeviceRequest
    device_class: DeviceClass


def _wanted(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> list[_Wanted]:
    name = claim_name(claim)
    spec = claim.spec.devices
    if spec.constraints:
        raise _unsupported(claim, "constraints")
    wanted: list[_Wanted] = []
    for index, request in enumerate(spec.requests):
        path = f"requests[{index}]"
        exactly = request.exactly
        if exactly is None:
            raise _unsupported(claim, f"{path}.firstAvailable" if request.first_available else f"{path} without exactly")
        if exactly.allocation_mode not in {"", "ExactCount"}:
            raise _unsupported(claim, f"{path}.exactly.allocationMode {exactly.allocation_mode!r}")
        for field_name, value in (("adminAccess", exactly.admin_access), ("tolerations", exactly.tolerations), ("capacity", exactly.capacity)):
            if value:
                raise _unsupported(claim, f"{path}.exactly.{field_name}")
        device_class = classes.get(exactly.device_class_name)
        if device_class is None:
            raise ClaimError(
                f"claim {name}, request {request.name}: could not retrieve device class {exactly.device_class_name}: "
                f'deviceclass.resource.k8s.io "{exactly.device_class_name}" not found'
            )
        before = sum(one.count for one in wanted)
        count = exactly.count or 1
        if before + count > MAX_RESULTS:
            raise ClaimError(
                f"claim {name}, request {request.name}: adding {count} devices exceeds the claim limit of {MAX_RESULTS}, "
                f"with {before} already accounted for"
            )
        wanted.append(_Wanted(request.name, count, exactly, device_class))
    return wanted


def _unsupported(claim: ResourceClaim, path: str) -> UnsupportedRequestError:
    return UnsupportedRequestError(f"claim {claim_name(claim)}: spec.devices.{path} is not supported yet")


# The search -------------------------------------------------------------------------------------------------------


class _Search:
    """Depth first over requests and their devices; within a request combinations, not permutations."""

    def __init__(
        self, claim: ResourceClaim, wanted: Sequence[_Wanted], candidates: Sequence[Candidate], in_use: Collection[tuple[str, str, str]]
    ) -> None:
        self.claim = claim
        self.wanted = wanted
        self.candidates = candidates
        self.in_use = in_use
        self.taken: list[tuple[_Wanted, Candidate]] = []
        self.steps = 0
        self._free = [candidate.id not in in_use for candidate in candidates]
        self._known: dict[tuple[int, int], bool] = {}

    def run(self) -> bool:
        """Whether `taken` satisfies all requests now. If not, and `steps` is above the limit, nobody knows whether it can be."""
        return self._fill(0, 0, 0)

    def _fill(self, request: int, have: int, start: int) -> bool:
        """Takes what request number `request`, which has `have` devices, and all later ones still need."""
        if request == len(self.wanted):
            return True
        want = self.wanted[request]
        if have == want.count:
            return self._fill(request + 1, 0, 0)
        self.steps += 1
        if self._is_hopeless(request, want.count - have, start):
            return False
        for position in range(start, len(self.candidates)):
            if self.steps > _LIMIT:
                return False
            if not self._free[position] or not self._is_suitable(request, position):
                continue
            _require_plain(self.candidates[position])
            self.taken.append((want, self.candidates[position]))
            self._free[position] = False
            if self._fill(request, have + 1, position + 1):
                return True
            self._free[position] = True
            self.taken.pop()
        return False

    def _is_hopeless(self, request: int, missing: int, start: int) -> bool:
        """Whether fewer devices are left than are missing. Not while one was never asked: its selector may fail, and that counts more."""
        left = [self._known.get((request, position)) for position in range(start, len(self.candidates)) if self._free[position]]
        return None not in left and sum(map(bool, left)) < missing

    def _is_suitable(self, request: int, position: int) -> bool:
        key = request, position
        if key not in self._known:
            want, candidate = self.wanted[request], self.candidates[position]
            self._known[key] = matches(candidate, want.device_class, self.claim, want.request) and not _is_tainted(candidate)
        return self._known[key]


def _is_tainted(candidate: Candidate) -> bool:
    """Whether a taint keeps the device from claims without tolerations."""
    return any(taint.effect in {"NoSchedule", "NoExecute"} for taint in candidate.device.taints)


def _require_plain(candidate: Candidate) -> None:
    """Refuses a chosen device whose use follows rules that are not implemented."""
    device = candidate.device
    rules = {
        "consumesCounters": device.consumes_counters,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "bindingConditions": device.binding_conditions,
    }
    for name, present in rules.items():
        if present:
            raise UnsupportedRequestError(
                f"ResourceSlice {candidate.slice.metadata.name}: spec.devices[{candidate.index}].{name} of device {candidate.id} is not supported yet"
            )


def _why(search: _Search, pools: Sequence[Pool]) -> str:
    """How many devices were looked at for each request, and what spoke against them."""
    parts = []
    for want in search.wanted:
        against = Counter(_against(candidate, want, search) for candidate in search.candidates)
        fitting = against.pop("", 0)
        reasons = f" ({', '.join(f'{count} {reason}' for reason, count in against.items())})" if against else ""
        parts.append(f"request {want.name} needs {want.count} and {fitting} of {len(search.candidates)} devices fit{reasons}")
    parts += [f"pool {pool} is not used ({pool.unusable})" for pool in pools if pool.unusable]
    return "; ".join(parts)


def _against(candidate: Candidate, want: _Wanted, search: _Search) -> str:
    """Why the device does not fit the request; empty if it does."""
    if candidate.id in search.in_use:
        return "in use"
    (one,) = report([candidate], want.device_class, search.claim, want.request)
    if one.decisive is not None:
        return f"where {one.decisive.owner}: selector #{one.decisive.index} {'fails' if one.decisive.error else 'is false'}"
    return "tainted" if _is_tainted(candidate) else ""


# The result -------------------------------------------------------------------------------------------------------


def _config(claim: ResourceClaim, wanted: Sequence[_Wanted]) -> list[DeviceAllocationConfiguration]:
    """Class configuration first, each class once, then the claim's; an empty request list means all requests."""
    by_class = {want.device_class.metadata.name: want.device_class for want in wanted}
    config = [
        DeviceAllocationConfiguration(
            source="FromClass",
            requests=[want.name for want in wanted if want.device_class.metadata.name == name],
            opaque=entry.opaque,
        )
        for name, device_class in by_class.items()
        for entry in device_class.spec.config
    ]
    names = {want.name for want in wanted}
    config += [
        DeviceAllocationConfiguration(source="FromClaim", requests=list(entry.requests), opaque=entry.opaque)
        for entry in claim.spec.devices.config
        if not entry.requests or names & set(entry.requests)
    ]
    for entry in config:
        if names <= set(entry.requests):
            entry.requests = []
    return config


def _node_selector(candidates: Sequence[Candidate], node: str) -> NodeSelector | None:
    """The node, if one of the devices exists only there; None if all can be reached from everywhere."""
    if not any(candidate.slice.spec.node_name or candidate.device.binds_to_node for candidate in candidates):
        return None
    here = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[here])])
