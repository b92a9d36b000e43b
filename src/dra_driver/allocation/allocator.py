"""First fit: which free devices of a node a claim gets, and what the scheduler would write into its status.

Devices are tried in the order of pools, slices and devices; the first combination that satisfies all requests wins, so a device that an earlier
request could take is left to a later one that needs it. Selectors are evaluated only when the search comes to a device, as in the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dra_driver.allocation.matching import claim_name, matches, report
from dra_driver.allocation.pools import Candidate, DeviceId, Pool, gather_pools
from dra_driver.errors import ClaimError, NoFitError, UnsupportedRequestError
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

_PATIENCE = 10_000
"""Steps after which the search asks whether it can succeed at all; the scheduler tries all combinations until its time is over."""


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
    scheduler gives up the pod: a missing class, a selector that does not compile or that fails on a device it comes to.
    """
    wanted = _wanted(claim, classes)
    pools = gather_pools(slices, node)
    search = _Search(claim, wanted, [candidate for pool in pools for candidate in pool.candidates()], frozenset(in_use))
    if not search.run():
        raise NoFitError(_why(search, pools, node))
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


@dataclass
class _Search:
    """Depth first over requests and their devices; within a request combinations, not permutations."""

    claim: ResourceClaim
    wanted: Sequence[_Wanted]
    candidates: Sequence[Candidate]
    in_use: Collection[tuple[str, str, str]]
    taken: list[tuple[_Wanted, Candidate]] = field(default_factory=list)
    _known: dict[tuple[int, int], bool] = field(default_factory=dict)
    _steps: int = 0
    _hopeless: bool = False

    def run(self) -> bool:
        """Whether `taken` satisfies all requests now."""
        return self._fill(0, 0, 0)

    def _fill(self, request: int, have: int, start: int) -> bool:
        """Takes what request number `request`, which has `have` devices, and all later ones still need."""
        if request == len(self.wanted):
            return True
        self._steps += 1
        want = self.wanted[request]
        if have == want.count:
            return self._fill(request + 1, 0, 0)
        for position in range(start, len(self.candidates)):
            if not self._is_free(position) or not self._is_selected(request, position):
                continue
            candidate = self.candidates[position]
            if self._hopeless or _is_tainted(candidate):
                continue
            _require_plain(candidate)
            self.taken.append((want, candidate))
            if self._fill(request, have + 1, position + 1):
                return True
            self.taken.pop()
        self._hopeless = self._hopeless or (self._steps > _PATIENCE and self._can_fit(request) < want.count)
        return False

    def _can_fit(self, request: int) -> int:
        """How many devices there are for the request, whatever the others take."""
        return sum(
            self._is_unused(position) and not _is_tainted(candidate) and self._is_selected(request, position)
            for position, candidate in enumerate(self.candidates)
        )

    def _is_unused(self, position: int) -> bool:
        return self.candidates[position].id not in self.in_use

    def _is_free(self, position: int) -> bool:
        return self._is_unused(position) and all(candidate is not self.candidates[position] for _, candidate in self.taken)

    def _is_selected(self, request: int, position: int) -> bool:
        key = request, position
        if key not in self._known:
            want = self.wanted[request]
            self._known[key] = matches(self.candidates[position], want.device_class, self.claim, want.request)
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


def _why(search: _Search, pools: Sequence[Pool], node: str) -> str:
    """How many devices were looked at for each request, and what spoke against them."""
    parts = []
    for want in search.wanted:
        against = Counter(_against(candidate, want, search) for candidate in search.candidates)
        fitting = against.pop("", 0)
        reasons = f" ({', '.join(f'{count} {reason}' for reason, count in against.items())})" if against else ""
        parts.append(f"request {want.name} needs {want.count} and {fitting} of {len(search.candidates)} devices fit{reasons}")
    parts += [f"pool {pool} is not used ({pool.unusable})" for pool in pools if pool.unusable]
    return f"claim {claim_name(search.claim)}: no fit on node {node}: {'; '.join(parts)}"


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
