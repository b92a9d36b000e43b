"""First fit: against recorded answers of the scheduler's allocator, and rule by rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.allocation.allocator import allocate, devices_in_use
from dra_driver.allocation.matching import report
from dra_driver.allocation.pools import DeviceId, gather_pools
from dra_driver.errors import ClaimError, ClaimRetryError, NoFitError, UnsupportedRequestError
from dra_driver.k8s.objects.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

GO = json.loads((Path(__file__).parent / "allocations.json").read_text(encoding="utf-8"))["cases"]

BIG = "device.capacity['d'].memory.compareTo(quantity('40Gi')) >= 0"
GUARDED = f"device.driver == 'd' && has(device.capacity['d'].memory) && {BIG}"


def gpu(name: str, memory: str = "80Gi", **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": memory}}, **more}


def slice_of(*devices: dict[str, Any], name: str = "s", pool: str = "n", driver: str = "d", node: str | None = "n", **more: Any) -> ResourceSlice:
    """A slice that is its whole pool, unless `pool_more` says otherwise."""
    pool_fields = {"name": pool, "generation": 1, "resourceSliceCount": 1, **more.pop("pool_more", {})}
    spec = {"driver": driver, "pool": pool_fields, "devices": list(devices), **({"nodeName": node} if node else {}), **more}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def class_of(*selectors: str, name: str = "gpu", config: list[dict[str, Any]] | None = None) -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": selector}} for selector in selectors], "config": config or []}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def request_of(*selectors: str, name: str = "r", count: int = 1, device_class: str = "gpu", **more: Any) -> dict[str, Any]:
    chosen = [{"cel": {"expression": selector}} for selector in selectors]
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, "selectors": chosen, **more}}


def claim_of(*requests: dict[str, Any], **more: Any) -> ResourceClaim:
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": list(requests), **more}}}, ResourceClaim
    )


ANY_GPU = {"gpu": class_of("device.driver == 'd'")}


def given(claim: ResourceClaim, *slices: ResourceSlice, **more: Any) -> list[tuple[str, str]]:
    """(request, device) pairs of the allocation."""
    results = allocate(claim, slices, more.pop("classes", ANY_GPU), node="n", **more).devices.results
    return [(result.request, result.device) for result in results]


@pytest.mark.parametrize("case", GO, ids=range(len(GO)))
def test_an_allocation_is_the_schedulers(case: dict[str, Any]) -> None:
    classes = {one["metadata"]["name"]: msgspec.convert(one, DeviceClass) for one in case["classes"]}
    claim = msgspec.convert(case["claim"], ResourceClaim)
    slices = msgspec.convert(case["slices"], list[ResourceSlice])
    in_use = {(driver, pool, device) for driver, pool, device in case["in_use"]}
    if "result" in case:
        assert allocate(claim, slices, classes, node="n1", in_use=in_use) == msgspec.convert(case["result"], AllocationResult)
    else:
        with pytest.raises(ClaimError) as error:
            allocate(claim, slices, classes, node="n1", in_use=in_use)
        assert isinstance(error.value, NoFitError) is ("error" not in case)
        assert "error" not in case or str(error.value) == case["error"]


def test_the_result_says_where_the_device_is() -> None:
    allocation = allocate(claim_of(request_of()), [slice_of(gpu("a"))], ANY_GPU, node="n")
    assert msgspec.to_builtins(allocation) == {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": "a"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
    }


def test_a_device_of_all_nodes_needs_no_node_selector() -> None:
    everywhere = slice_of(gpu("a"), node=None, allNodes=True)
    assert allocate(claim_of(request_of()), [everywhere], ANY_GPU, node="n").node_selector is None
    here = slice_of(gpu("b"), name="t", driver="e", pool="n")
    claim = claim_of(request_of("device.driver == 'd'", name="x"), request_of("device.driver == 'e'", name="y"))
    assert allocate(claim, [everywhere, here], {"gpu": class_of()}, node="n").node_selector is not None


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([request_of(count=2)], [("r", "a"), ("r", "b")]),
        ([request_of(name="x"), request_of(name="y")], [("x", "a"), ("y", "b")]),
        ([request_of(GUARDED)], [("r", "b")]),
        ([request_of(name="x"), request_of("device.capacity['d'].memory.compareTo(quantity('1Gi')) == 0", name="y")], [("x", "b"), ("y", "a")]),
        ([request_of(name="x", count=2), request_of(GUARDED, name="y")], [("x", "a"), ("x", "b"), ("y", "c")]),
        ([request_of(GUARDED, name="y", count=2), request_of(name="x")], [("y", "b"), ("y", "c"), ("x", "a")]),
        ([request_of(count=0)], [("r", "a")]),
    ],
)
def test_the_first_combination_that_satisfies_all_requests_wins(requests: list[dict[str, Any]], expected: list[tuple[str, str]]) -> None:
    assert given(claim_of(*requests), slice_of(gpu("a", "1Gi"), gpu("b"), gpu("c"))) == expected


def test_pools_slices_and_devices_are_tried_by_name_and_place() -> None:
    slices = [
        slice_of(gpu("z"), driver="e", pool="a"),
        slice_of(gpu("c"), name="s2", pool="b", pool_more={"resourceSliceCount": 2}),
        slice_of(gpu("b"), gpu("a"), name="s1", pool="b", pool_more={"resourceSliceCount": 2}),
        slice_of(gpu("d"), pool="a"),
    ]
    assert [device for _, device in given(claim_of(request_of(count=5)), *slices, classes={"gpu": class_of()})] == ["d", "b", "a", "c", "z"]


def test_devices_in_use_and_tainted_ones_are_left_out() -> None:
    broken = gpu("b", taints=[{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}])
    noted = gpu("c", taints=[{"key": "gpu.nvidia.com/unmonitored", "effect": "None"}])
    assert given(claim_of(request_of()), slice_of(gpu("a"), broken, noted), in_use={("d", "n", "a")}) == [("r", "c")]


def test_devices_in_use_are_those_of_allocated_claims_without_admin_access() -> None:
    def allocated(**result: Any) -> ResourceClaim:
        results = [{"request": "r", "driver": "d", "pool": "n", "device": "a", **result}]
        return msgspec.convert({"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": results}}}}, ResourceClaim)

    assert devices_in_use([allocated(), allocated(device="b", adminAccess=True), claim_of()]) == {DeviceId("d", "n", "a")}


def test_configuration_comes_from_each_class_once_and_then_from_the_claim() -> None:
    def opaque(value: int) -> dict[str, Any]:
        return {"opaque": {"driver": "d", "parameters": {"value": value}}}

    classes = {"gpu": class_of(config=[opaque(1)]), "other": class_of(name="other", config=[opaque(2)])}
    claim = claim_of(
        request_of(name="x"),
        request_of(name="y", device_class="other"),
        request_of(name="z"),
        config=[opaque(3), {"requests": ["y"], **opaque(4)}, {"requests": ["z", "y", "x"], **opaque(5)}],
    )
    config = allocate(claim, [slice_of(gpu("a"), gpu("b"), gpu("c"))], classes, node="n").devices.config
    assert [(entry.source, entry.requests, entry.opaque.parameters["value"]) for entry in config if entry.opaque] == [
        ("FromClass", ["x", "z"], 1),
        ("FromClass", ["y"], 2),
        ("FromClaim", [], 3),
        ("FromClaim", ["y"], 4),
        ("FromClaim", [], 5),
    ]


def test_a_claim_that_does_not_fit_says_what_was_looked_at() -> None:
    broken = gpu("d", taints=[{"key": "k", "effect": "NoExecute"}])
    unified = {"name": "e"}
    half = slice_of(gpu("f"), name="t", pool="p", pool_more={"resourceSliceCount": 3})
    with pytest.raises(NoFitError) as error:
        given(claim_of(request_of(GUARDED, count=2)), slice_of(gpu("a"), gpu("b", "1Gi"), gpu("c"), broken, unified), half, in_use={("d", "n", "a")})
    assert str(error.value) == (
        "claim default/c: no fit on node n: request r needs 2 and 1 of 5 devices fit "
        "(1 in use, 2 where claim default/c: selector #0 is false, 1 tainted); "
        "pool d/p is not used (incomplete: 1 of 3 slices of generation 1 exist)"
    )
    assert error.value.retryable


def test_requests_that_fit_alone_but_not_together_do_not_fit() -> None:
    with pytest.raises(NoFitError, match="request x needs 2 and 2 of 2 devices fit; request y needs 1 and 2 of 2 devices fit"):
        given(claim_of(request_of(name="x", count=2), request_of(name="y")), slice_of(gpu("a"), gpu("b")))


def test_requests_that_together_ask_for_one_device_too_many_are_answered() -> None:
    devices = [gpu(f"d{number:03}") for number in range(16)]
    with pytest.raises(NoFitError, match="request x needs 8 and 16 of 16 devices fit; request y needs 9 and 16 of 16 devices fit"):
        given(claim_of(request_of(name="x", count=8), request_of(name="y", count=9)), slice_of(*devices))


@pytest.mark.parametrize("requests", [[request_of(name="x", count=10), request_of("false", name="y")], [request_of(name=n, count=8) for n in "xyz"]])
def test_a_search_without_end_is_given_up(requests: list[dict[str, Any]]) -> None:
    """The scheduler would try up to 10**10 combinations."""
    devices = [gpu(f"d{number:03}") for number in range(23)]
    with pytest.raises(
        ClaimRetryError, match=r"no fit on node n within 100000 combinations \(the scheduler gives up after 10 s\): request x"
    ) as error:
        given(claim_of(*requests), slice_of(*devices))
    assert not isinstance(error.value, NoFitError)


def test_a_selector_that_fails_on_a_device_counts_more_than_too_few_devices() -> None:
    with pytest.raises(ClaimError, match="device d/n/b: CEL runtime error: no such key: memory"):
        given(claim_of(request_of(BIG, count=3)), slice_of(gpu("a"), {"name": "b"}))


HINT = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"


@pytest.mark.parametrize(
    ("device_class", "request_selectors", "message"),
    [
        (class_of(), [BIG], f"claim default/c: selector #0 on device d/n/a: CEL runtime error: no such key: memory{HINT}"),
        (class_of("true", BIG), [], f"class gpu: selector #1 on device d/n/a: CEL runtime error: no such key: memory{HINT}"),
        (class_of("1 / 0 == 1"), [], "class gpu: selector #0 on device d/n/a: CEL runtime error: division by zero"),
        (
            class_of(),
            ["device.attributes['d'].type.compareTo(quantity('1')) == 0"],
            "claim default/c: selector #0 on device d/n/a: CEL runtime error: no such overload: compareTo(string, kubernetes.Quantity)",
        ),
        (class_of(), ["true", "devise.driver == 'd'"], "claim default/c: selector #1: CEL compile error: compilation failed: ERROR: <input>:1:1: "),
    ],
)
def test_a_selector_that_fails_stops_everything_with_the_schedulers_text(
    device_class: DeviceClass, request_selectors: list[str], message: str
) -> None:
    without = {"name": "a", "attributes": {"type": {"string": "gpu"}}}
    with pytest.raises(ClaimError) as error:
        given(claim_of(request_of(*request_selectors)), slice_of(without, gpu("b")), classes={"gpu": device_class})
    assert str(error.value).startswith(message)
    assert not isinstance(error.value, NoFitError)


def test_a_selector_is_not_evaluated_on_devices_after_the_chosen_one() -> None:
    assert given(claim_of(request_of(BIG)), slice_of(gpu("a"), {"name": "b"})) == [("r", "a")]


@pytest.mark.parametrize(
    ("claim", "path"),
    [
        (claim_of(request_of(allocationMode="All")), "requests[0].exactly.allocationMode 'All'"),
        (claim_of(request_of(), request_of(name="x", adminAccess=True)), "requests[1].exactly.adminAccess"),
        (claim_of(request_of(tolerations=[{"key": "a", "operator": "Exists"}])), "requests[0].exactly.tolerations"),
        (claim_of(request_of(capacity={"requests": {"memory": "1Gi"}})), "requests[0].exactly.capacity"),
        (claim_of({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}), "requests[0].firstAvailable"),
        (claim_of(request_of(), constraints=[{"matchAttribute": "d/type"}]), "constraints"),
    ],
)
def test_what_a_claim_may_not_ask_for_yet_is_named_by_its_field(claim: ResourceClaim, path: str) -> None:
    with pytest.raises(UnsupportedRequestError) as error:
        given(claim, slice_of(gpu("a")))
    assert str(error.value) == f"claim default/c: spec.devices.{path} is not supported yet"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consumesCounters", [{"counterSet": "s", "counters": {"memory": {"value": "1"}}}]),
        ("allowMultipleAllocations", True),
        ("bindingConditions", ["ready"]),
    ],
)
def test_a_device_with_rules_of_its_own_is_refused_only_when_chosen(field: str, value: Any) -> None:
    special = gpu("b", **{field: value})
    assert given(claim_of(request_of()), slice_of(gpu("a"), special)) == [("r", "a")]
    with pytest.raises(UnsupportedRequestError) as error:
        given(claim_of(request_of()), slice_of(gpu("a"), special), in_use={("d", "n", "a")})
    assert str(error.value) == f"ResourceSlice s: spec.devices[1].{field} of device d/n/b is not supported yet"


def test_a_missing_class_is_named() -> None:
    with pytest.raises(ClaimError, match=r"claim default/c, request r: could not retrieve device class nope: .*not found"):
        given(claim_of(request_of(device_class="nope")), slice_of(gpu("a")))


def test_a_claim_gets_at_most_32_devices() -> None:
    devices = [gpu(f"d{number:02}") for number in range(40)]
    assert len(given(claim_of(request_of(count=32)), slice_of(*devices))) == 32
    with pytest.raises(ClaimError, match="request y: adding 3 devices exceeds the claim limit of 32, with 30 already accounted for"):
        given(claim_of(request_of(name="x", count=30), request_of(name="y", count=3)), slice_of(*devices))


def test_the_report_shows_every_selector_of_every_device() -> None:
    (pool,) = gather_pools([slice_of(gpu("a"), gpu("b", "1Gi"), {"name": "c"})], "n")
    claim = claim_of(request_of("true", BIG))
    exactly = claim.spec.devices.requests[0].exactly
    assert exactly is not None
    rows = report(pool.candidates(), class_of("device.driver == 'd'"), claim, exactly)
    assert [[str(answer.value) if not answer.error else "error" for answer in row.answers] for row in rows] == [
        ["True", "True", "True"],
        ["True", "True", "False"],
        ["True", "True", "error"],
    ]
    assert [str(row.decisive) for row in rows] == [
        "None",
        "claim default/c: selector #1 is false",
        f"claim default/c: selector #1 on device d/n/c: CEL runtime error: no such key: memory{HINT}",
    ]
