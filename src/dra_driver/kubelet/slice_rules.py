"""What the API server would refuse of a ResourceSlice, found before it is sent and told in its words, plus what it cannot see: a pool as a whole.

The rules are those of resource.k8s.io/v1 in Kubernetes 1.37.2 with all feature gates on, but for DRAFractionalCapacityRange (requests of fractions).
A test compares them with a real API server on generated slices. Of the metadata only the name is looked at.

The server checks twice, by hand and declaratively, and reports what either finds; by hand it stops at a list that is too long. That shows in what is
reported together, and therefore in the names here: `by_hand`, `declared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dra_driver.errors import SliceError
from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_driver.kubelet import counter_rules, device_rules, node_rules

MAX_DEVICES = 128
MAX_DEVICES_WITH_ADVANCED_FEATURES = 64  # taints, counters or list attributes
MAX_COUNTER_SETS = 8
GENERATED_NAME_BASE = 58  # what is kept of generateName before five random characters

_RANDOM = "xxxxx"

_SKIPPABLE = ("*", "NodePrepareResources", "NodeUnprepareResources")


def check(pool: str, slices: Sequence[ResourceSlice]) -> None:
    """SliceError for the first things that are wrong with the slices of one pool, or with the pool that they make."""
    found = [str(error) for one in slices for error in problems(one)] + list(pool_problems(one.spec for one in slices))
    if found:
        shown = "; ".join(dict.fromkeys(found[:5]))
        raise SliceError(f"pool {pool}: {shown}{f' (and {len(found) - 5} more)' if len(found) > 5 else ''}")


def problems(one: ResourceSlice) -> Iterator[FieldError]:
    """Everything that is wrong with one slice by itself."""
    if found := list(unreadable(one.spec)):
        yield from found
        return
    yield from _object_name(one.metadata)
    spec = one.spec
    yield from device_rules.driver_name(spec.driver, "spec.driver")
    yield from _pool(spec.pool)
    yield from node_rules.slice_choice(spec)
    if spec.devices and spec.shared_counters:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _devices(spec)
    yield from _counter_sets(spec.shared_counters)
    yield from _partition_type(spec)
    yield from _skipped_operations(spec.skip_node_operations)


def unreadable(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    """Values that the API server cannot even read; it answers 400 and looks no further."""
    for index, device in enumerate(spec.devices):
        yield from device_rules.unreadable(device, f"spec.devices[{index}]")
    for index, one in enumerate(spec.shared_counters):
        yield from counter_rules.unreadable(one.counters, f"spec.sharedCounters[{index}].counters")


def pool_problems(specs: Iterable[ResourceSliceSpec]) -> Iterator[str]:
    """What makes a pool useless although the API server takes each of its slices: names that are there twice, counters that are nowhere."""
    specs = list(specs)
    counter_sets: dict[str, CounterSet] = {}
    for counter_set in (one for spec in specs for one in spec.shared_counters):
        if counter_set.name in counter_sets:
            yield f'found duplicate counter set "{counter_set.name}"'
        counter_sets.setdefault(counter_set.name, counter_set)
    seen: set[str] = set()
    for device in (one for spec in specs for one in spec.devices):
        if device.name in seen:
            yield f'found duplicate device "{device.name}"'
        seen.add(device.name)
        for consumption in device.consumes_counters:
            counter_set_of = counter_sets.get(consumption.counter_set)
            if counter_set_of is None:
                yield f'counter set "{consumption.counter_set}" referenced by device "{device.name}" not found'
                continue
            for counter in consumption.counters.keys() - counter_set_of.counters.keys():
                yield f'counter "{counter}" referenced by device "{device.name}" not found in counter set "{consumption.counter_set}"'


def _object_name(meta: ObjectMeta) -> Iterator[FieldError]:
    name = meta.name
    if not name and meta.generate_name:
        masked = f"{meta.generate_name[:-2]}a" if len(meta.generate_name) > 1 and meta.generate_name.endswith("-") else meta.generate_name
        yield from (invalid("metadata.generateName", meta.generate_name, text) for text in names.dns_subdomain_errors(masked))
        name = f"{meta.generate_name[:GENERATED_NAME_BASE]}{_RANDOM}"
    if not name:
        yield required("metadata.name", "name or generateName is required")
    yield from (invalid("metadata.name", name, text) for text in (names.dns_subdomain_errors(name) if name else ()))


def _pool(pool: ResourcePool) -> Iterator[FieldError]:
    where = "spec.pool"
    if not pool.name:
        yield required(f"{where}.name")
    elif len(pool.name.encode()) > names.POOL_NAME_MAX:
        yield too_long(f"{where}.name", names.POOL_NAME_MAX)
    for part in pool.name.split("/") if pool.name else ():
        yield from (invalid(f"{where}.name", part, text) for text in names.dns_subdomain_errors(part))
    if pool.resource_slice_count <= 0:
        yield invalid(f"{where}.resourceSliceCount", pool.resource_slice_count, "must be greater than zero")
    if pool.generation < 0:
        yield invalid(f"{where}.generation", pool.generation, "must be greater than or equal to zero")


def _devices(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    limit = MAX_DEVICES_WITH_ADVANCED_FEATURES if any(map(device_rules.is_advanced, spec.devices)) else MAX_DEVICES
    by_hand = len(spec.devices) <= limit
    if not by_hand:
        yield too_many("spec.devices", len(spec.devices), limit)
    else:
        yield from _unique_names(spec.devices)
    for index, device in enumerate(spec.devices):
        where = f"spec.devices[{index}]"
        if by_hand:
            yield from device_rules.by_hand(device, where)
            yield from node_rules.device_choice(device, where, per_device=bool(spec.per_device_node_selection))
        yield from device_rules.declared(device, where)


def _unique_names(devices: Sequence[Device]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, device in enumerate(devices):
        if device.name in seen:
            yield duplicate(f"spec.devices[{index}]", device.name)
        seen.add(device.name)


def _counter_sets(counter_sets: Sequence[CounterSet]) -> Iterator[FieldError]:
    where = "spec.sharedCounters"
    if len(counter_sets) > MAX_COUNTER_SETS:
        yield too_many(where, len(counter_sets), MAX_COUNTER_SETS)
        return
    seen: set[str] = set()
    for index, one in enumerate(counter_sets):
        if one.name in seen:
            yield duplicate(f"{where}[{index}]", {"name": one.name} | counter_rules.shown(one.counters))
        seen.add(one.name)
        yield from counter_rules.set_name(one.name, f"{where}[{index}].name")
        yield from counter_rules.too_many_counters(one.counters, f"{where}[{index}].counters")
        yield from counter_rules.counters(one.counters, f"{where}[{index}].counters")


def _partition_type(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    name, where = spec.partition_type_attribute, "spec.partitionTypeAttribute"
    if name is None:
        return
    malformed = list(device_rules.fully_qualified_name(name, where))
    yield from malformed
    if not any(device.consumes_counters for device in spec.devices):
        yield invalid(where, name, "may only be set on a slice which declares devices that consume counters")
    elif not malformed:
        bare = name.removeprefix(f"{spec.driver}/")
        for index, device in enumerate(spec.devices):
            if device.consumes_counters:
                yield from device_rules.partition_type(device, name, bare, f"spec.devices[{index}].attributes[{name}]")


def _skipped_operations(operations: Sequence[str]) -> Iterator[FieldError]:
    where = "spec.skipNodeOperations"
    prepare, unprepare = "NodePrepareResources" in operations, {"NodeUnprepareResources", "*"} & set(operations)
    if prepare and not unprepare:
        yield invalid(where, list(operations), "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped")
    for index, operation in enumerate(operations):
        if operation in operations[:index]:
            yield duplicate(f"{where}[{index}]", operation)
        if operation not in _SKIPPABLE:
            yield not_supported(f"{where}[{index}]", operation, _SKIPPABLE)
