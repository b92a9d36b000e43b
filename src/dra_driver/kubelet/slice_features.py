"""Parts of a ResourceSlice that an API server may not know: behind feature gates, dropped silently or refused, and what is offered without them.

Each feature has a simpler form of the pool that stays true without it. A device that cannot be offered safely without a feature is left out: a
tainted one would look healthy, and of devices that share counters all could be given away at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from dra_driver.k8s.objects.resource import Counter, CounterSet, Device, DeviceAttribute, DeviceCapacity, ResourceSliceSpec
from dra_driver.k8s.quantity import Quantity


class Pool(msgspec.Struct, frozen=True):
    """What a driver offers under one pool name; devices in the order in which they should be taken.

    `partition_type_attribute` names the attribute that tells the kind of a device that consumes counters; `skip_node_operations` is what the kubelet
    need not call the driver for.
    """

    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class Feature(msgspec.Struct, frozen=True):
    """`gate` is its name in Kubernetes; `without` makes the simpler pool.

    `words` are of paths in the text of a 422, `in_devices` and `in_slice` find it in a slice.
    """

    gate: str
    words: tuple[str, ...]
    without: Callable[[Pool], Pool]
    in_devices: Callable[[Device], object] = lambda _: False
    in_slice: Callable[[ResourceSliceSpec], object] = lambda _: False

    def used_by(self, spec: ResourceSliceSpec) -> bool:
        """Whether the slice has it."""
        return bool(self.in_slice(spec)) or any(map(self.in_devices, spec.devices))


def used(spec: ResourceSliceSpec) -> frozenset[str]:
    """The gates that a slice needs."""
    return frozenset(feature.gate for feature in FEATURES if feature.used_by(spec))


def simplified(pool: Pool, lacking: Iterable[str]) -> Pool:
    """The pool without the features of the gates that are `lacking`."""
    lacking = frozenset(lacking)
    for feature in FEATURES:
        if feature.gate in lacking:
            pool = feature.without(pool)
    return pool


def blamed(refusal: str, candidates: Iterable[str]) -> str | None:
    """The gate among `candidates` that the text of a 422 points at, if it is about the slice's content at all and not a policy's verdict."""
    if " is invalid: " not in refusal:
        return None
    candidates = frozenset(candidates)
    return next((feature.gate for feature in FEATURES if feature.gate in candidates and any(word in refusal for word in feature.words)), None)


def _changed(pool: Pool, change: Callable[[Device], Device | None]) -> Pool:
    return replace(pool, devices=tuple(new for device in pool.devices if (new := change(device)) is not None))


# Lists as attributes ----------------------------------------------------------------------------------------------


def _is_list(one: DeviceAttribute) -> bool:
    return any(value is not None for value in (one.ints, one.bools, one.strings, one.versions))


def _without_lists(pool: Pool) -> Pool:
    def change(device: Device) -> Device:
        return replace(device, attributes={name: one for name, one in device.attributes.items() if not _is_list(one)})

    return _changed(pool, change)


# Taints -----------------------------------------------------------------------------------------------------------


def _without_taints(pool: Pool) -> Pool:
    """Effect None is only told; the others keep pods away, which then only absence does."""

    def change(device: Device) -> Device | None:
        if any(taint.effect != "None" for taint in device.taints):
            return None
        return replace(device, taints=[]) if device.taints else device

    return _changed(pool, change)


# Counters ---------------------------------------------------------------------------------------------------------


def _without_counters(pool: Pool) -> Pool:
    """Of each counter set stays the first device that takes all of it: nothing else could be allocated beside it anyway."""
    sets = {one.name: one for one in pool.counter_sets}
    taken: set[str] = set()

    def change(device: Device) -> Device | None:
        if not device.consumes_counters:
            return device
        needed = {one.counter_set for one in device.consumes_counters}
        if needed & taken or not _takes_all(device, sets):
            return None
        taken.update(needed)
        return replace(device, consumes_counters=[])

    return replace(_changed(pool, change), counter_sets=(), partition_type_attribute=None)


def _without_groups(pool: Pool) -> Pool:
    """Devices of different groups exclude each other, which counters alone do not; one that takes a whole set excludes all by itself."""
    sets = {one.name: one for one in pool.counter_sets}

    def change(device: Device) -> Device | None:
        if not _has_groups(device):
            return device
        bare = [replace(one, compatibility_groups=[]) for one in device.consumes_counters]
        return replace(device, consumes_counters=bare) if _takes_all(device, sets) else None

    return _changed(pool, change)


def _has_groups(device: Device) -> bool:
    return any(one.compatibility_groups for one in device.consumes_counters)


def _takes_all(device: Device, sets: Mapping[str, CounterSet]) -> bool:
    def amounts(counters: Mapping[str, Counter]) -> dict[str, Quantity]:
        return {name: Quantity.parse(counter.value) for name, counter in counters.items()}

    return all(one.counter_set in sets and amounts(one.counters) == amounts(sets[one.counter_set].counters) for one in device.consumes_counters)


# Binding conditions, consumable capacity, and what concerns a slice as a whole ------------------------------------


def _without_binding_conditions(pool: Pool) -> Pool:
    """A device that must be made ready first cannot be offered without the wait for it."""

    def change(device: Device) -> Device | None:
        return None if device.binding_conditions else replace(device, binds_to_node=None)

    return _changed(pool, change)


def _without_shares(pool: Pool) -> Pool:
    """A device that could be shared is offered as a whole."""

    def change(device: Device) -> Device:
        whole = {name: DeviceCapacity(one.value) for name, one in device.capacity.items()}
        return replace(device, capacity=whole, allow_multiple_allocations=None)

    return _changed(pool, change)


FEATURES = (
    Feature(
        "DRAOptionalNodeOperations",
        ("skipNodeOperations",),
        lambda pool: replace(pool, skip_node_operations=()),
        in_slice=lambda spec: spec.skip_node_operations,
    ),
    Feature(
        "DRAPartitionableDevicesType",
        ("partitionTypeAttribute",),
        lambda pool: replace(pool, partition_type_attribute=None),
        in_slice=lambda spec: spec.partition_type_attribute is not None,
    ),
    Feature(
        "DRAListTypeAttributes",
        (".attributes[",),
        _without_lists,
        in_devices=lambda device: any(map(_is_list, device.attributes.values())),
    ),
    Feature("DRADeviceCompatibilityGroups", ("compatibilityGroups",), _without_groups, in_devices=_has_groups),
    Feature(
        "DRADeviceBindingConditions",
        ("bindingConditions", "bindingFailureConditions", "bindsToNode"),
        _without_binding_conditions,
        in_devices=lambda device: device.binding_conditions or device.binds_to_node is not None,
    ),
    Feature(
        "DRAConsumableCapacity",
        ("requestPolicy", "allowMultipleAllocations"),
        _without_shares,
        in_devices=lambda device: (
            device.allow_multiple_allocations is not None or any(one.request_policy is not None for one in device.capacity.values())
        ),
    ),
    Feature("DRADeviceTaints", (".taints",), _without_taints, in_devices=lambda device: device.taints),
    Feature(
        "DRAPartitionableDevices",
        ("consumesCounters", "sharedCounters", "spec: Required value"),
        _without_counters,
        in_devices=lambda device: device.consumes_counters,
        in_slice=lambda spec: spec.shared_counters or spec.per_device_node_selection is not None,
    ),
)
"""In the order in which they are given up where a refusal points at several."""
