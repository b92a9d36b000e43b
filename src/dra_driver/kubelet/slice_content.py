"""When two slices say the same, in different words: amounts by value, times of taints as the server may set and round them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dra_driver.errors import ParseError
from dra_driver.k8s.objects.resource import Counter, CounterSet, Device, DeviceCapacity, DeviceTaint, ResourceSliceSpec
from dra_driver.k8s.quantity import Quantity

TAINT_TIME_TOLERANCE = 1.0  # seconds; the API stores whole ones


def same(found: ResourceSliceSpec, wanted: ResourceSliceSpec) -> bool:
    """Whether devices, counters and what else a slice says are equal, whatever pool generation and node they have. The order of lists counts."""
    return (
        _same_devices(found.devices, wanted.devices)
        and _sets_by_value(found.shared_counters) == _sets_by_value(wanted.shared_counters)
        and found.partition_type_attribute == wanted.partition_type_attribute
        and found.skip_node_operations == wanted.skip_node_operations
    )


def with_times_of(known: Sequence[Device], wanted: Sequence[Device]) -> list[Device]:
    """`wanted`, where a taint that has no time keeps the one under which it is known already."""
    times = {(device.name, taint.key, taint.value, taint.effect): taint.time_added for device in known for taint in device.taints}

    def kept(device: Device, taint: DeviceTaint) -> DeviceTaint:
        time = times.get((device.name, taint.key, taint.value, taint.effect))
        return msgspec.structs.replace(taint, time_added=time) if taint.time_added is None and time is not None else taint

    if not times:
        return list(wanted)
    return [msgspec.structs.replace(device, taints=[kept(device, taint) for taint in device.taints]) for device in wanted]


def _same_devices(found: Sequence[Device], wanted: Sequence[Device]) -> bool:
    return len(found) == len(wanted) and all(map(_same_device, found, wanted))


def _same_device(found: Device, wanted: Device) -> bool:
    if found == wanted:  # the usual case, and fast
        return True
    return _same_taints(found.taints, wanted.taints) and _by_value(found) == _by_value(wanted)


def _same_taints(found: Sequence[DeviceTaint], wanted: Sequence[DeviceTaint]) -> bool:
    return len(found) == len(wanted) and all(map(_same_taint, found, wanted))


def _same_taint(found: DeviceTaint, wanted: DeviceTaint) -> bool:
    if (found.key, found.value, found.effect) != (wanted.key, wanted.value, wanted.effect):
        return False
    if found.time_added is None or wanted.time_added is None or found.time_added == wanted.time_added:
        return True
    try:
        apart = datetime.fromisoformat(found.time_added) - datetime.fromisoformat(wanted.time_added)
    except (ValueError, TypeError):
        return False
    return abs(apart.total_seconds()) <= TAINT_TIME_TOLERANCE


def _by_value(device: Device) -> tuple[object, ...]:
    """The device but for its taints, with amounts that are equal when their values are."""
    rest = msgspec.structs.replace(device, taints=[], capacity={}, consumes_counters=[])
    consumed = [(one.counter_set, _amounts(one.counters), one.compatibility_groups) for one in device.consumes_counters]
    return rest, {name: _capacity(one) for name, one in device.capacity.items()}, consumed


def _sets_by_value(counter_sets: Sequence[CounterSet]) -> list[tuple[object, ...]]:
    return [(one.name, _amounts(one.counters)) for one in counter_sets]


def _amounts(counters: Mapping[str, Counter]) -> dict[str, object]:
    return {name: _amount(one.value) for name, one in counters.items()}


def _capacity(one: DeviceCapacity) -> tuple[object, ...]:
    policy = one.request_policy
    if policy is None:
        return (_amount(one.value),)
    bounds = policy.valid_range
    limits = None if bounds is None else [_amount(text) for text in (bounds.min, bounds.max, bounds.step)]
    return _amount(one.value), _amount(policy.default), [_amount(text) for text in policy.valid_values], limits


def _amount(text: str | None) -> Quantity | str | None:
    try:
        return None if text is None else Quantity.parse(text)
    except ParseError:
        return text
