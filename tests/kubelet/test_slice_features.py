"""What is offered to an API server that lacks a feature."""

from __future__ import annotations

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
)
from dra_driver.kubelet import slice_features, slices
from dra_driver.kubelet.slice_features import FEATURES, Pool, blamed, simplified, used

SETS = (CounterSet("gpu-0", {"memory": Counter("80Gi"), "slices": Counter("7")}), CounterSet("gpu-1", {"memory": Counter("80Gi")}))
PLAIN = Device("plain", {"model": DeviceAttribute(string="H200")}, {"memory": DeviceCapacity("80Gi")})


def taking(name: str, counter_set: str = "gpu-0", groups: tuple[str, ...] = (), **counters: str) -> Device:
    amounts = {counter: Counter(value) for counter, value in counters.items()}
    return Device(name, consumes_counters=[DeviceCounterConsumption(counter_set, amounts, list(groups))])


def offered(pool: Pool, *gates: str) -> list[Device]:
    return list(simplified(pool, gates).devices)


WHOLE = taking("gpu-0", memory="80Gi", slices="7")
PARTS = [taking("mig-0", memory="10Gi", slices="1"), taking("mig-1", memory="81920Mi", slices="7")]


def test_without_taints_a_device_that_repels_pods_is_left_out_and_one_that_only_tells_stays() -> None:
    devices = (
        PLAIN,
        Device("broken", taints=[DeviceTaint("a", "NoSchedule")]),
        Device("evicting", taints=[DeviceTaint("b", "None"), DeviceTaint("a", "NoExecute")]),
        Device("warm", taints=[DeviceTaint("a", "None")]),
    )
    assert offered(Pool(devices), "DRADeviceTaints") == [PLAIN, Device("warm")]


def test_without_counters_the_first_device_that_takes_all_of_a_set_stands_for_it() -> None:
    pool = Pool((PLAIN, PARTS[0], WHOLE, PARTS[1], taking("other", "gpu-1", memory="10Gi")), SETS, "d/profile")
    simple = simplified(pool, {"DRAPartitionableDevices"})
    assert simple.devices == (PLAIN, Device("gpu-0"))
    assert (simple.counter_sets, simple.partition_type_attribute) == ((), None)


def test_without_compatibility_groups_only_devices_that_exclude_all_others_anyway_stay() -> None:
    grouped = taking("mig", groups=("a",), memory="10Gi", slices="1")
    whole = taking("gpu-0", groups=("a", "b"), memory="80Gi", slices="7")
    assert offered(Pool((PLAIN, grouped, whole, PARTS[0]), SETS), "DRADeviceCompatibilityGroups") == [PLAIN, WHOLE, PARTS[0]]


def test_without_binding_conditions_a_device_that_must_be_made_ready_is_left_out() -> None:
    waiting = Device("fabric", binding_conditions=["ready"], binding_failure_conditions=["failed"], binds_to_node=True)
    assert offered(Pool((PLAIN, waiting, Device("near", binds_to_node=True))), "DRADeviceBindingConditions") == [PLAIN, Device("near")]


def test_without_consumable_capacity_a_shared_device_is_offered_as_a_whole() -> None:
    policy = CapacityRequestPolicy("1Gi", valid_range=CapacityRange("1Gi"))
    shared = Device("shared", capacity={"memory": DeviceCapacity("80Gi", policy)}, allow_multiple_allocations=True)
    assert offered(Pool((shared,)), "DRAConsumableCapacity") == [Device("shared", capacity={"memory": DeviceCapacity("80Gi")})]


def test_without_lists_an_attribute_that_is_one_is_left_out() -> None:
    device = Device("gpu-0", {"numa": DeviceAttribute(ints=[0, 1]), "model": DeviceAttribute(string="H200")})
    assert offered(Pool((device,)), "DRAListTypeAttributes") == [Device("gpu-0", {"model": DeviceAttribute(string="H200")})]


def test_what_concerns_a_slice_as_a_whole_is_dropped() -> None:
    pool = Pool((PLAIN,), (), "d/profile", ("*",))
    assert simplified(pool, {"DRAOptionalNodeOperations", "DRAPartitionableDevicesType"}) == Pool((PLAIN,))


RICH = Pool(
    (
        PLAIN,
        *PARTS,
        taking("grouped", "gpu-1", groups=("a",), memory="1"),
        Device("list", {"numa": DeviceAttribute(ints=[1])}),
        Device("tainted", taints=[DeviceTaint("a", "NoSchedule")]),
        Device("waiting", binding_conditions=["a"], binding_failure_conditions=["b"]),
        Device("shared", allow_multiple_allocations=True),
    ),
    SETS,
    "d/profile",
    ("*",),
)
GATES = [feature.gate for feature in FEATURES]


def all_used(pool: Pool) -> frozenset[str]:
    return frozenset().union(*(used(spec) for spec in slices.layout(pool)))


def test_every_feature_is_seen_in_a_pool_that_uses_all() -> None:
    assert all_used(RICH) == set(GATES)
    assert simplified(RICH, ()) == RICH


@given(st.sets(st.sampled_from(GATES)))
def test_what_is_simplified_uses_nothing_that_lacks_and_all_that_does_not(lacking: set[str]) -> None:
    implied = {"DRAPartitionableDevicesType", "DRADeviceCompatibilityGroups"} if "DRAPartitionableDevices" in lacking else set()
    left = all_used(simplified(RICH, lacking))
    assert not left & lacking
    assert left >= set(GATES) - lacking - implied - ({"DRAPartitionableDevicesType"} if not left & {"DRAPartitionableDevices"} else set())
    assert PLAIN in simplified(RICH, lacking).devices


REFUSAL = 'ResourceSlice.resource.k8s.io "00000-x" is invalid: '


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        (REFUSAL + "spec.devices[0].attributes[numa]: Invalid value: ...: must specify one of: `int`", "DRAListTypeAttributes"),
        (REFUSAL + "spec.devices[3].taints: Too many: 5: must have at most 4 items", "DRADeviceTaints"),
        (REFUSAL + 'spec.devices[3].taints[0].effect: Unsupported value: "None"', "DRADeviceTaints"),
        (REFUSAL + "spec.devices[0].consumesCounters: Too many: 40", "DRAPartitionableDevices"),
        (REFUSAL + "spec.devices[0].capacity[a].requestPolicy: Forbidden", "DRAConsumableCapacity"),
        (REFUSAL + "spec.devices[0].name: Invalid value", None),
        ("resourceslices \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no .taints for you", None),
    ],
)
def test_a_refusal_points_at_a_feature_or_at_none(text: str, gate: str | None) -> None:
    assert blamed(text, GATES) == gate
    assert blamed(text, ()) is None


def test_features_are_told_by_the_names_of_their_gates() -> None:
    assert len(set(GATES)) == len(slice_features.FEATURES)
