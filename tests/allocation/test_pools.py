"""Which slices form a usable pool for a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_driver.allocation.pools import gather_pools
from dra_driver.k8s.objects.resource import ResourceSlice


def slice_of(name: str, *devices: str, generation: int = 1, count: int = 1, pool: str = "p", **where: Any) -> ResourceSlice:
    spec = {
        "driver": "d",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": [{"name": device} for device in devices],
        **(where or {"nodeName": "n"}),
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


ELSEWHERE: dict[str, Any] = {"nodeName": "other"}
LABELS: dict[str, Any] = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}
INCOMPLETE = "incomplete: 1 of 2 slices of generation 2 exist"

# slices, devices of the usable pools, reasons of the others
CASES: dict[str, tuple[list[ResourceSlice], list[str], list[str]]] = {
    "one slice": ([slice_of("s", "a")], ["a"], []),
    "by slice name": ([slice_of("t", "b", count=2), slice_of("s", "a", count=2)], ["a", "b"], []),
    "by pool name": ([slice_of("s", "a", pool="q"), slice_of("t", "b", pool="p")], ["b", "a"], []),
    "another node's": ([slice_of("s", "a", **ELSEWHERE)], [], []),
    "all nodes": ([slice_of("s", "a", allNodes=True)], ["a"], []),
    "newest generation": ([slice_of("s", "a"), slice_of("t", "b", generation=2)], ["b"], []),
    "newest generation incomplete": ([slice_of("s", "a"), slice_of("t", "b", generation=2, count=2)], [], [INCOMPLETE]),
    "completed by another node's slice": ([slice_of("s", "a", count=2), slice_of("t", "b", count=2, **ELSEWHERE)], ["a"], []),
    "replaced elsewhere, still complete here": ([slice_of("s", "a"), slice_of("t", "b", generation=2, **ELSEWHERE)], ["a"], []),
    "replaced elsewhere": ([slice_of("s", "a", count=2), slice_of("t", "b", generation=2, **ELSEWHERE)], [], []),
    "a name twice": ([slice_of("s", "a", "b", count=2), slice_of("t", "b", count=2)], [], ["invalid: duplicate device name b"]),
    "by labels": ([slice_of("s", "a", **LABELS)], [], ["its slices select nodes by labels, which is not supported yet"]),
    "device by device": ([slice_of("s", "a", perDeviceNodeSelection=True)], [], ["its slices select nodes by labels, which is not supported yet"]),
    "for nobody": ([slice_of("s", "a", allNodes=False)], [], []),
    "nothing": ([], [], []),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [1, -1])
def test_a_pool_is_its_complete_newest_generation(case: str, order: int) -> None:
    slices, devices, reasons = CASES[case]
    pools = gather_pools(slices[::order], "n")
    assert [candidate.device.name for pool in pools for candidate in pool.candidates()] == devices
    assert [pool.unusable for pool in pools if pool.unusable] == reasons


def test_a_candidate_knows_its_place() -> None:
    (pool,) = gather_pools([slice_of("s", "a", "b")], "n")
    candidate = list(pool.candidates())[1]
    assert str(candidate.id) == "d/p/b"
    assert (candidate.slice.metadata.name, candidate.index) == ("s", 1)
    assert candidate.view.driver == "d"
    assert str(pool) == "d/p"
