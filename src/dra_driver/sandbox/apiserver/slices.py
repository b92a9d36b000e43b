"""What the API server does to ResourceSlices: defaults, fields of disabled gates, and the limits of resource.k8s.io/v1 in 1.37.

Written from the API's rules and independent of what the driver checks by itself, so that each shows the other's mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dra_driver.errors import ParseError
from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, invalid, required, too_long, too_many
from dra_driver.k8s.quantity import Quantity
from dra_driver.sandbox.apiserver import devices
from dra_driver.sandbox.apiserver.refusals import bad_request

MAX_DEVICES = 128
MAX_DEVICES_WITH_ADVANCED_FEATURES = 64
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
IMMUTABLE = "field is immutable"
_NODE_CHOICE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"

Json = dict[str, Any]

_FRACTION = re.compile(r"\.[0-9]+")


def prepare(new: Json, old: Json | None, now: str, disabled_gates: frozenset[str]) -> None:
    """Defaults, canonical quantities, and silence about what a disabled gate does not know; what the old object uses already stays."""
    spec = new["spec"]
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            stamp_taint(taint, now)
        for capacity in (device.get("capacity") or {}).values():
            _canonical(capacity)
        for consumption in device.get("consumesCounters") or ():
            for counter in (consumption.get("counters") or {}).values():
                _canonical(counter)
    for counter_set in spec.get("sharedCounters") or ():
        for counter in (counter_set.get("counters") or {}).values():
            _canonical(counter)
    for gate in disabled_gates & _GATES.keys():
        in_use, drop = _GATES[gate]
        if old is None or not in_use(old["spec"]):
            drop(spec)


def stamp_taint(taint: Json, now: str) -> None:
    """`SetDefaults_DeviceTaint`; times are stored in whole seconds."""
    taint["timeAdded"] = _FRACTION.sub("", taint.get("timeAdded") or now)


def validate(new: Json, old: Json | None) -> Iterator[FieldError]:
    """All that is wrong, in the real server's words."""
    spec = new["spec"]
    yield from devices.driver_name(spec.get("driver") or "", "spec.driver")
    yield from _pool(spec.get("pool") or {})
    if old is not None:
        for field, value, before in (
            ("spec.pool.name", (spec.get("pool") or {}).get("name"), old["spec"]["pool"]["name"]),
            ("spec.driver", spec.get("driver"), old["spec"]["driver"]),
            ("spec.nodeName", spec.get("nodeName"), old["spec"].get("nodeName")),
        ):
            if value != before:
                yield invalid(field, value, IMMUTABLE)
    yield from _node_choice(spec)
    found, counter_sets = spec.get("devices") or [], spec.get("sharedCounters") or []
    if found and counter_sets:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    limit = MAX_DEVICES_WITH_ADVANCED_FEATURES if any(map(devices.is_advanced, found)) else MAX_DEVICES
    if len(found) > limit:
        yield too_many("spec.devices", len(found), limit)
    else:
        for index, device in enumerate(found):
            yield from devices.validate(device, f"spec.devices[{index}]", per_device_nodes=bool(spec.get("perDeviceNodeSelection")))
        yield from devices.unique([device.get("name", "") for device in found], "spec.devices")
    yield from _counter_sets(counter_sets)


def _pool(pool: Json) -> Iterator[FieldError]:
    name = pool.get("name") or ""
    if not name:
        yield required("spec.pool.name")
    elif len(name) > names.POOL_NAME_MAX:
        yield too_long("spec.pool.name", names.POOL_NAME_MAX)
    for part in name.split("/") if name else ():
        if error := names.dns_subdomain_error(part):
            yield invalid("spec.pool.name", part, error)
    if pool.get("resourceSliceCount", 0) <= 0:
        yield invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), "must be greater than zero")
    if pool.get("generation", 0) < 0:
        yield invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")


def _node_choice(spec: Json) -> Iterator[FieldError]:
    if spec.get("nodeName") == "":
        yield invalid("spec.nodeName", "", "must be either unset or set to a non-empty string")
    elif spec.get("nodeName") and (error := names.dns_subdomain_error(spec["nodeName"])):
        yield invalid("spec.nodeName", spec["nodeName"], error)
    selector = spec.get("nodeSelector")
    if selector is not None and not selector.get("nodeSelectorTerms"):
        yield required("spec.nodeSelector.nodeSelectorTerms", "must have at least one node selector term")
    if selector is not None and len(selector.get("nodeSelectorTerms") or ()) != 1:
        yield invalid("spec.nodeSelector.nodeSelectorTerms", selector.get("nodeSelectorTerms"), "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field) is False:
            yield invalid(f"spec.{field}", value=False, detail="must be either unset or set to true")
    chosen = [
        f"`{field}`" for field in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(field) not in (None, "", False)
    ]
    if not chosen:
        yield required("spec", _NODE_CHOICE)
    elif len(chosen) > 1:
        yield invalid("spec", f"{{{', '.join(chosen)}}}", f"{_NODE_CHOICE}, but multiple fields are set")


def _counter_sets(counter_sets: list[Json]) -> Iterator[FieldError]:
    if len(counter_sets) > MAX_COUNTER_SETS:
        yield too_many("spec.sharedCounters", len(counter_sets), MAX_COUNTER_SETS)
        return
    for index, counter_set in enumerate(counter_sets):
        where, name = f"spec.sharedCounters[{index}]", counter_set.get("name") or ""
        if name:
            yield from devices.label(name, f"{where}.name")
        else:
            yield required(f"{where}.name")
        yield from devices.counters(counter_set.get("counters") or {}, f"{where}.counters", MAX_COUNTERS)
    yield from devices.unique([counter_set.get("name") or "" for counter_set in counter_sets], "spec.sharedCounters", counter_sets)


def _canonical(holder: Json) -> None:
    try:
        holder["value"] = str(Quantity.parse(holder.get("value", "0")))
    except ParseError as error:
        raise bad_request(f'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: {error}') from error


def _has(field: str) -> Callable[[Json], bool]:
    return lambda spec: any(device.get(field) for device in spec.get("devices") or ())


def _without(*fields: str, of_slice: tuple[str, ...] = ()) -> Callable[[Json], None]:
    def drop(spec: Json) -> None:
        for field in of_slice:
            spec.pop(field, None)
        for device in spec.get("devices") or ():
            for field in fields:
                device.pop(field, None)

    return drop


def _drop_consumable(spec: Json) -> None:
    _without("allowMultipleAllocations")(spec)
    for device in spec.get("devices") or ():
        for capacity in (device.get("capacity") or {}).values():
            capacity.pop("requestPolicy", None)


def _drop_groups(spec: Json) -> None:
    for consumption in _consumptions(spec):
        consumption.pop("compatibilityGroups", None)


def _consumptions(spec: Json) -> list[Json]:
    return [consumption for device in spec.get("devices") or () for consumption in device.get("consumesCounters") or ()]


def _drop_lists(spec: Json) -> None:
    for device in spec.get("devices") or ():
        for attribute in (device.get("attributes") or {}).values():
            for field in devices.LISTS:
                attribute.pop(field, None)


_GATES: dict[str, tuple[Callable[[Json], bool], Callable[[Json], None]]] = {
    "DRADeviceTaints": (_has("taints"), _without("taints")),
    "DRAPartitionableDevices": (
        lambda spec: bool(spec.get("sharedCounters") or spec.get("perDeviceNodeSelection")) or _has("consumesCounters")(spec),
        _without("consumesCounters", "nodeName", "nodeSelector", "allNodes", of_slice=("sharedCounters", "perDeviceNodeSelection")),
    ),
    "DRADeviceBindingConditions": (_has("bindingConditions"), _without("bindingConditions", "bindingFailureConditions", "bindsToNode")),
    "DRAConsumableCapacity": (_has("allowMultipleAllocations"), _drop_consumable),
    "DRADeviceCompatibilityGroups": (lambda spec: any(one.get("compatibilityGroups") for one in _consumptions(spec)), _drop_groups),
    "DRAPartitionableDevicesType": (lambda spec: "partitionTypeAttribute" in spec, _without(of_slice=("partitionTypeAttribute",))),
    "DRAOptionalNodeOperations": (lambda spec: bool(spec.get("skipNodeOperations")), _without(of_slice=("skipNodeOperations",))),
    "DRAListTypeAttributes": (lambda spec: any(map(devices.has_lists, spec.get("devices") or ())), _drop_lists),
}
