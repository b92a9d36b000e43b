"""When two slices say the same."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.k8s.objects.resource import (
    CapacityRange,
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)
from dra_driver.kubelet import slice_content
from tests.kubelet.slice_cases import slice_of


def spec() -> ResourceSliceSpec:
    policy = CapacityRequestPolicy("1Gi", valid_range=CapacityRange("1Gi", "80Gi", "1Gi"))
    first = Device(
        "gpu-0",
        {"model": DeviceAttribute(string="H200"), "numa": DeviceAttribute(int_=0)},
        {"memory": DeviceCapacity("80Gi", policy), "shares": DeviceCapacity("10", CapacityRequestPolicy("1", ["1", "2"]))},
        [DeviceCounterConsumption("set", {"memory": Counter("1024Mi")})],
        taints=[DeviceTaint("a", "NoSchedule", "x", "2026-01-02T03:04:05Z")],
    )
    return ResourceSliceSpec(
        "d", ResourcePool("p", 1), devices=[first, Device("gpu-1")], shared_counters=[CounterSet("set", {"memory": Counter("1Gi")})]
    )


def change(path: str, value: object) -> Callable[[ResourceSliceSpec], None]:
    def apply(one: ResourceSliceSpec) -> None:
        *way, last = path.split(".")
        at: object = one
        for part in way:
            at = at[int(part)] if part.isdecimal() else at[part] if isinstance(at, dict) else getattr(at, part)  # type: ignore[index]
        if isinstance(at, dict):
            at[last] = value
        else:
            setattr(at, last, value)

    return apply


@pytest.mark.parametrize(
    "different_words",
    [
        change("devices.0.capacity.memory.value", "81920Mi"),
        change("devices.0.capacity.memory.value", "85899345920"),
        change("devices.0.capacity.memory.request_policy.default", "1024Mi"),
        change("devices.0.capacity.memory.request_policy.valid_range.step", "1073741824"),
        change("devices.0.capacity.shares.request_policy.valid_values", ["1000m", "2e0"]),
        change("devices.0.consumes_counters.0.counters.memory.value", "1Gi"),
        change("shared_counters.0.counters.memory.value", "1024Mi"),
        change("devices.0.taints.0.time_added", None),
        change("devices.0.taints.0.time_added", "2026-01-02T03:04:06Z"),
        change("devices.0.taints.0.time_added", "2026-01-02T04:04:05.4+01:00"),
        change("pool.generation", 7),
        change("node_name", "other"),
    ],
)
def test_the_same_in_other_words(different_words: Callable[[ResourceSliceSpec], None]) -> None:
    other = spec()
    different_words(other)
    assert slice_content.same(other, spec())
    assert slice_content.same(spec(), other)


@pytest.mark.parametrize(
    "difference",
    [
        change("devices.0.name", "gpu-2"),
        change("devices.0.attributes.numa.int_", 1),
        change("devices.0.attributes.model", DeviceAttribute(version="1.0.0")),
        change("devices.0.capacity.memory.value", "80G"),
        change("devices.0.capacity.memory.value", "what"),
        change("devices.0.capacity.memory.request_policy", None),
        change("devices.0.capacity.memory.request_policy.valid_range.max", None),
        change("devices.0.capacity.shares.request_policy.valid_values", ["2", "1"]),
        change("devices.0.consumes_counters", []),
        change("devices.0.consumes_counters.0.counter_set", "other"),
        change("devices.0.consumes_counters.0.counters.memory.value", "2Gi"),
        change("devices.0.consumes_counters.0.compatibility_groups", ["a"]),
        change("devices.0.taints", []),
        change("devices.0.taints.0.value", "y"),
        change("devices.0.taints.0.time_added", "2026-01-02T03:04:07Z"),
        change("devices.0.taints.0.time_added", "yesterday"),
        change("devices.0.taints.0.time_added", "2026-01-02T03:04:05"),
        change("devices.0.allow_multiple_allocations", False),
        change("devices.0.binding_conditions", ["ready"]),
        change("devices", []),
        change("shared_counters", []),
        change("shared_counters.0.counters.memory.value", "2Gi"),
        change("partition_type_attribute", "d/kind"),
        change("skip_node_operations", ["*"]),
    ],
)
def test_something_else(difference: Callable[[ResourceSliceSpec], None]) -> None:
    other = spec()
    difference(other)
    assert not slice_content.same(other, spec())
    assert not slice_content.same(spec(), other)


def test_the_order_of_devices_counts() -> None:
    other = spec()
    other.devices.reverse()
    assert not slice_content.same(other, spec())


@given(st.integers(0, 2**32))
def test_every_slice_says_the_same_as_itself_and_as_its_json(seed: int) -> None:
    one = slice_of(seed).spec
    assert slice_content.same(one, copy.deepcopy(one))
    assert slice_content.same(one, msgspec.json.decode(msgspec.json.encode(one), type=ResourceSliceSpec))
