"""What the API server would refuse of one device: names, attributes, taints, binding conditions. See slice_rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many
from dra_driver.k8s.objects.resource import Device, DeviceAttribute, DeviceTaint
from dra_driver.kubelet import capacity_rules, counter_rules

MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_BINDING_CONDITIONS = 4
MAX_KEY_SHOWN = names.ATTRIBUTE_DOMAIN_MAX + 1 + names.ATTRIBUTE_ID_MAX

EFFECTS = ("NoExecute", "NoSchedule", "None")

_INT64 = range(-(2**63), 2**63)
_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_ONE_OF = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"


def is_advanced(device: Device) -> bool:
    """Whether the device halves the number of devices that its slice may have."""
    return bool(device.taints or device.consumes_counters) or has_lists(device)


def has_lists(device: Device) -> bool:
    """Whether an attribute is a list."""
    return any(value is not None for one in device.attributes.values() for value in _lists(one).values())


def driver_name(value: str, where: str) -> Iterator[FieldError]:
    """A driver's name, and the domain of an attribute; upper case passes."""
    if not value:
        yield required(where)
        return
    if len(value.encode()) > names.DRIVER_NAME_MAX:
        yield too_long(where, names.DRIVER_NAME_MAX)
    yield from (invalid(where, value, text) for text in names.dns_subdomain_errors(value.lower()))


def fully_qualified_name(value: str, where: str) -> Iterator[FieldError]:
    """`domain/id`; more than one slash passes, as for attributes."""
    domain, slash, identifier = value.rpartition("/")
    if not slash:
        yield from _identifier(value, where)
        yield invalid(where, value, "a fully qualified name must be a domain and a name separated by a slash")
    if not slash or "/" in domain:
        return
    if not domain:
        yield invalid(where, "", "prefix must not be empty")
    elif len(domain.encode()) > names.ATTRIBUTE_DOMAIN_MAX:
        yield too_long(where, names.ATTRIBUTE_DOMAIN_MAX)
    yield from (invalid(where, domain, f"prefix: {text}") for text in (names.dns_subdomain_errors(domain, unit="bytes") if domain else ()))
    if identifier:
        yield from _identifier(identifier, where)
    else:
        yield invalid(where, "", "name must not be empty")


def unreadable(device: Device, where: str) -> Iterator[FieldError]:
    """Numbers beyond 64 bits, and texts that are no Quantity."""
    for name, attribute in device.attributes.items():
        for number in (attribute.int_, *(attribute.ints or ())):
            if number is not None and number not in _INT64:
                yield invalid(f"{where}.attributes[{name}]", number, "must fit 64 bits with a sign")
    for name, capacity in device.capacity.items():
        yield from capacity_rules.unreadable(capacity, f"{where}.capacity[{name}]")
    for index, consumption in enumerate(device.consumes_counters):
        yield from counter_rules.unreadable(consumption.counters, f"{where}.consumesCounters[{index}].counters")


def by_hand(device: Device, where: str) -> Iterator[FieldError]:
    """What is checked only in a slice that has not too many devices."""
    yield from (invalid(f"{where}.name", device.name, text) for text in names.dns_label_errors(device.name))
    entries = len(device.attributes) + len(device.capacity)
    if entries > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield invalid(where, entries, f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}")
    values = sum(max(1, sum(len(value or ()) for value in _lists(one).values())) for one in device.attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        yield invalid(where, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")
    for name, attribute in device.attributes.items():
        yield from _qualified_name(name, f"{where}.attributes")
        yield from _attribute(attribute, f"{where}.attributes[{_shortened(name)}]")
        yield from _union_by_hand(attribute, f"{where}.attributes[{_shortened(name)}]", declared_elsewhere=_shortened(name) != name)
    for name, capacity in device.capacity.items():
        yield from _qualified_name(name, f"{where}.capacity")
        shared = bool(device.allow_multiple_allocations)
        yield from capacity_rules.capacity(capacity, f"{where}.capacity[{_shortened(name)}]", shared=shared)
    if len(device.taints) > MAX_TAINTS:
        yield too_many(f"{where}.taints", len(device.taints), MAX_TAINTS)
    else:
        for index, taint in enumerate(device.taints):
            yield from _taint(taint, f"{where}.taints[{index}]")
    if len(device.consumes_counters) <= counter_rules.MAX_CONSUMPTIONS:
        for index, consumption in enumerate(device.consumes_counters):
            yield from counter_rules.too_many_counters(consumption.counters, f"{where}.consumesCounters[{index}].counters")
    yield from _binding_conditions(device, where)


def declared(device: Device, where: str) -> Iterator[FieldError]:
    """What is checked always."""
    for name, attribute in device.attributes.items():
        yield from _union(attribute, f"{where}.attributes[{name}]")
    yield from counter_rules.consumptions(device.consumes_counters, f"{where}.consumesCounters")
    for index, taint in enumerate(device.taints):
        if not taint.effect:
            yield required(f"{where}.taints[{index}].effect")
        elif taint.effect not in EFFECTS:
            yield not_supported(f"{where}.taints[{index}].effect", taint.effect, EFFECTS)
    for field, found in (("bindingConditions", device.binding_conditions), ("bindingFailureConditions", device.binding_failure_conditions)):
        if len(found) > MAX_BINDING_CONDITIONS:
            yield too_many(f"{where}.{field}", len(found), MAX_BINDING_CONDITIONS)


def partition_type(device: Device, name: str, bare: str, where: str) -> Iterator[FieldError]:
    """The attribute that tells the kind of a partition is there, with or without the driver's domain, and a string."""
    attribute = device.attributes.get(name) or device.attributes.get(bare)
    if attribute is None:
        yield required(where, "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set")
    elif attribute.string is None:
        yield invalid(where, _internal(attribute), "must be a string value because `partitionTypeAttribute` names this attribute")


def _qualified_name(value: str, where: str) -> Iterator[FieldError]:
    domain, slash, identifier = value.rpartition("/")
    if "/" in domain:
        return
    if slash and not domain:
        yield invalid(where, "", "the domain must not be empty")
    elif slash:
        yield from driver_name(domain, where)
    if slash and not identifier:
        yield invalid(where, "", "the name must not be empty")
    else:
        yield from _identifier(identifier, where)


def _identifier(value: str, where: str) -> Iterator[FieldError]:
    if len(value.encode()) > names.ATTRIBUTE_ID_MAX:
        yield too_long(where, names.ATTRIBUTE_ID_MAX)
    if text := names.c_identifier_mismatch(value):
        yield invalid(where, value, text)


def _attribute(one: DeviceAttribute, where: str) -> Iterator[FieldError]:
    if one.string is not None:
        yield from _text(one.string, f"{where}.string")
    if one.version is not None:
        yield from _version(one.version, f"{where}.version")
    for field, found in _lists(one).items():
        if found is not None and not found:
            yield invalid(f"{where}.{field}", [], "must not be empty if specified")
    for index, text in enumerate(one.strings or ()):
        yield from _text(text, f"{where}.strings[{index}]")
    for index, text in enumerate(one.versions or ()):
        yield from _version(text, f"{where}.versions[{index}]")


def _text(value: str, where: str) -> Iterator[FieldError]:
    if len(value.encode()) > MAX_VALUE_BYTES:
        yield too_long(where, MAX_VALUE_BYTES)


def _version(value: str, where: str) -> Iterator[FieldError]:
    if not _SEMVER.fullmatch(value):
        yield invalid(where, value, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text(value, where)


def _lists(one: DeviceAttribute) -> dict[str, Sequence[object] | None]:
    return {"ints": one.ints, "bools": one.bools, "strings": one.strings, "versions": one.versions}


def _values(one: DeviceAttribute) -> dict[str, object]:
    return {"int": one.int_, "bool": one.bool_, "string": one.string, "version": one.version, **_lists(one)}


def _union(one: DeviceAttribute, where: str) -> Iterator[FieldError]:
    given = [field for field, value in _values(one).items() if value is not None and value != []]
    if not given:
        yield invalid(where, "", f"must specify one of: {_ONE_OF}")
    elif len(given) > 1:
        yield invalid(where, f"{{{', '.join(given)}}}", f"must specify exactly one of: {_ONE_OF}")


def _union_by_hand(one: DeviceAttribute, where: str, *, declared_elsewhere: bool) -> Iterator[FieldError]:
    """The same check before it was declared: it counts empty lists, and is heard only where the declaration has nothing to say at this path."""
    given = sum(value is not None for value in _values(one).values())
    if given != 1 and (declared_elsewhere or not any(_union(one, where))):
        yield invalid(where, _internal(one) if given else "", "exactly one value must be specified")


def _internal(one: DeviceAttribute) -> dict[str, object]:
    """The attribute in the JSON of the server's internal type."""
    fields = ("IntValue", "BoolValue", "StringValue", "VersionValue", "IntValues", "BoolValues", "StringValues", "VersionValues")
    return dict(zip(fields, _values(one).values(), strict=True))


def _taint(taint: DeviceTaint, where: str) -> Iterator[FieldError]:
    yield from (invalid(f"{where}.key", taint.key, text) for text in names.label_key_errors(taint.key))
    yield from (invalid(f"{where}.value", taint.value, text) for text in names.label_value_errors(taint.value))


def _binding_conditions(device: Device, where: str) -> Iterator[FieldError]:
    conditions, failures = device.binding_conditions, device.binding_failure_conditions
    for field, found in (("bindingConditions", conditions), ("bindingFailureConditions", failures)):
        for index, condition in enumerate(found):
            if len(found) <= MAX_BINDING_CONDITIONS:
                yield from (invalid(f"{where}.{field}[{index}]", condition, text) for text in names.label_key_errors(condition))
            if condition in found[:index]:
                yield duplicate(f"{where}.{field}[{index}]", condition)
    for index, failure in enumerate(failures):
        if failure in conditions:
            yield invalid(f"{where}.bindingFailureConditions[{index}]", failure, "bindingFailureConditions must not overlap with bindingConditions")
    if failures and not conditions:
        yield invalid(f"{where}.bindingConditions", None, "bindingConditions are required to use bindingFailureConditions")
    if conditions and not failures:
        yield invalid(f"{where}.bindingFailureConditions", None, "bindingFailureConditions are required to use bindingConditions")


def _shortened(key: str) -> str:
    """A key as the server shows it in a path: with its middle left out where it is too long."""
    raw = key.encode()
    if len(raw) <= MAX_KEY_SHOWN:
        return key
    rest = MAX_KEY_SHOWN - 3
    return (raw[: (rest + 1) // 2] + b"..." + raw[len(raw) - rest // 2 :]).decode(errors="replace")
