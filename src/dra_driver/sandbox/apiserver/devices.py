"""The limits of one device of a ResourceSlice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many

MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_CONSUMPTIONS = 2
MAX_COUNTERS = 32
MAX_BINDING_CONDITIONS = 4
LISTS = ("ints", "bools", "strings", "versions")

_VALUES = ("int", "bool", "string", "version", *LISTS)
_ONE_OF = ", ".join(f"`{field}`" for field in _VALUES)
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_PART = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-{_PART}(\.{_PART})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?")
_NODE_CHOICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)

Json = dict[str, Any]


def has_lists(device: Json) -> bool:
    """Uses list attributes."""
    return any(field in attribute for attribute in (device.get("attributes") or {}).values() for field in LISTS)


def is_advanced(device: Json) -> bool:
    """Halves the number of devices of its slice."""
    return bool(device.get("taints") or device.get("consumesCounters")) or has_lists(device)


def validate(device: Json, where: str, *, per_device_nodes: bool) -> Iterator[FieldError]:
    """All that is wrong with one device."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    yield from label(device.get("name") or "", f"{where}.name")
    if (total := len(attributes) + len(capacity)) > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield invalid(where, total, f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}")
    values = sum(max(1, sum(len(attribute.get(field) or ()) for field in LISTS)) for attribute in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        yield invalid(where, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")
    for name, attribute in attributes.items():
        yield from qualified_name(name, f"{where}.attributes")
        yield from _attribute(attribute, f"{where}.attributes[{name}]")
    for name in capacity:
        yield from qualified_name(name, f"{where}.capacity")
    yield from _taints(device.get("taints") or [], f"{where}.taints")
    yield from _consumptions(device.get("consumesCounters") or [], f"{where}.consumesCounters")
    yield from _nodes(device, where, per_device_nodes=per_device_nodes)
    yield from _binding_conditions(device, where)


def driver_name(value: str, where: str) -> Iterator[FieldError]:
    """`spec.driver`, and the domain of a qualified name."""
    if not value:
        yield required(where)
        return
    if len(value) > names.DRIVER_NAME_MAX:
        yield too_long(where, names.DRIVER_NAME_MAX)
    if error := names.dns_subdomain_error(value.lower()):
        yield invalid(where, value, error)


def qualified_name(value: str, where: str) -> Iterator[FieldError]:
    """The name of an attribute or capacity; more than one slash passes, as in the real server."""
    domain, slash, identifier = value.rpartition("/")
    if "/" in domain:
        return
    if slash and not domain:
        yield invalid(where, "", "the domain must not be empty")
    elif slash:
        yield from driver_name(domain, where)
    if slash and not identifier:
        yield invalid(where, "", "the name must not be empty")
    elif len(identifier) > names.ATTRIBUTE_ID_MAX:
        yield too_long(where, names.ATTRIBUTE_ID_MAX)
    elif error := names.c_identifier_error(identifier):
        yield invalid(where, identifier, error)


def label(value: str, where: str) -> Iterator[FieldError]:
    """Names of devices, counters and counter sets."""
    if error := names.dns_label_error(value):
        yield invalid(where, value, error)


def counters(found: Json, where: str, limit: int) -> Iterator[FieldError]:
    """A map of counters: not empty, good names."""
    if not found:
        yield required(where)
    elif len(found) > limit:
        yield too_many(where, len(found), limit)
    else:
        for name in found:
            yield from label(name, where)


def unique(values: Sequence[str], where: str, shown: Sequence[Any] | None = None) -> Iterator[FieldError]:
    """No value twice; the message shows the value, or the entry of `shown` in its place."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{where}[{index}]", value if shown is None else shown[index])
        seen.add(value)


def _attribute(attribute: Json, where: str) -> Iterator[FieldError]:
    for field in ("string", "version"):
        value = attribute.get(field, "0.0.0")
        if field == "version" and not _SEMVER.fullmatch(value):
            yield invalid(f"{where}.version", value, "must be a string compatible with semver.org spec 2.0.0")
        if len(value.encode()) > MAX_VALUE_BYTES:
            yield too_long(f"{where}.{field}", MAX_VALUE_BYTES)
    given = [field for field in _VALUES if field in attribute and attribute[field] != []]
    if not given:
        yield invalid(where, "", f"must specify one of: {_ONE_OF}")
    elif len(given) > 1:
        yield invalid(where, f"{{{', '.join(given)}}}", f"must specify exactly one of: {_ONE_OF}")


def _taints(taints: list[Json], where: str) -> Iterator[FieldError]:
    if len(taints) > MAX_TAINTS:
        yield too_many(where, len(taints), MAX_TAINTS)
        return
    for index, taint in enumerate(taints):
        one = f"{where}[{index}]"
        if error := names.label_key_error(taint.get("key") or ""):
            yield invalid(f"{one}.key", taint.get("key") or "", error)
        if error := names.label_value_error(taint.get("value") or ""):
            yield invalid(f"{one}.value", taint["value"], error)
        effect = taint.get("effect") or ""
        if not effect:
            yield required(f"{one}.effect")
        elif effect not in _EFFECTS:
            yield not_supported(f"{one}.effect", effect, _EFFECTS)


def _consumptions(consumptions: list[Json], where: str) -> Iterator[FieldError]:
    if len(consumptions) > MAX_CONSUMPTIONS:
        yield too_many(where, len(consumptions), MAX_CONSUMPTIONS)
        return
    for index, consumption in enumerate(consumptions):
        counter_set = consumption.get("counterSet") or ""
        if not counter_set:
            yield required(f"{where}[{index}].counterSet")
        else:
            yield from label(counter_set, f"{where}[{index}].counterSet")
        yield from counters(consumption.get("counters") or {}, f"{where}[{index}].counters", MAX_COUNTERS)
    yield from unique([consumption.get("counterSet") or "" for consumption in consumptions], where, consumptions)


def _nodes(device: Json, where: str, *, per_device_nodes: bool) -> Iterator[FieldError]:
    given = [f"`{field}`" for field in ("nodeName", "nodeSelector", "allNodes") if device.get(field) not in (None, "", False)]
    if not per_device_nodes:
        if given:
            yield invalid(
                where,
                None,
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            )
    elif not given:
        yield required(where, _NODE_CHOICE)
    elif len(given) > 1:
        yield invalid(where, f"{{{', '.join(given)}}}", _NODE_CHOICE)


def _binding_conditions(device: Json, where: str) -> Iterator[FieldError]:
    conditions, failures = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    for field, found in (("bindingConditions", conditions), ("bindingFailureConditions", failures)):
        if len(found) > MAX_BINDING_CONDITIONS:
            yield too_many(f"{where}.{field}", len(found), MAX_BINDING_CONDITIONS)
        yield from unique(found, f"{where}.{field}")
    for index, failure in enumerate(failures):
        if failure in conditions:
            yield invalid(f"{where}.bindingFailureConditions[{index}]", failure, "bindingFailureConditions must not overlap with bindingConditions")
    if failures and not conditions:
        yield invalid(f"{where}.bindingConditions", None, "bindingConditions are required to use bindingFailureConditions")
    if conditions and not failures:
        yield invalid(f"{where}.bindingFailureConditions", None, "bindingFailureConditions are required to use bindingConditions")
