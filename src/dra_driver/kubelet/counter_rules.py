"""What the API server would refuse of counters: of counter sets, and of what devices take from them. See slice_rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dra_driver.k8s import names
from dra_driver.k8s.field_errors import FieldError, duplicate, invalid, required, too_many
from dra_driver.k8s.objects.resource import Counter, DeviceCounterConsumption
from dra_driver.k8s.quantity import Quantity
from dra_driver.kubelet import capacity_rules

MAX_COUNTERS = 32  # of a set, and of one consumption
MAX_CONSUMPTIONS = 2
MAX_COMPATIBILITY_GROUPS = 2


def set_name(name: str, where: str) -> Iterator[FieldError]:
    """The name of a counter set, where it is defined or used."""
    if not name:
        yield required(where)
    else:
        yield from _label(name, where)


def unreadable(found: Mapping[str, Counter], where: str) -> Iterator[FieldError]:
    """Texts that are no Quantity."""
    for name, counter in found.items():
        yield from capacity_rules.quantity(counter.value, f"{where}[{name}].value")


def counters(found: Mapping[str, Counter], where: str) -> Iterator[FieldError]:
    """Names of counters; some are needed."""
    if not found:
        yield required(where)
    for name in found:
        yield from _label(name, where)


def too_many_counters(found: Mapping[str, Counter], where: str) -> Iterator[FieldError]:
    """Their number."""
    if len(found) > MAX_COUNTERS:
        yield too_many(where, len(found), MAX_COUNTERS)


def consumptions(found: Sequence[DeviceCounterConsumption], where: str) -> Iterator[FieldError]:
    """What one device takes, as far as the server's declarations go."""
    if len(found) > MAX_CONSUMPTIONS:
        yield too_many(where, len(found), MAX_CONSUMPTIONS)
        return
    for index, one in enumerate(found):
        if any(one.counter_set == other.counter_set for other in found[:index]):
            groups = {"compatibilityGroups": one.compatibility_groups} if one.compatibility_groups else {}
            yield duplicate(f"{where}[{index}]", {"counterSet": one.counter_set} | shown(one.counters) | groups)
        yield from set_name(one.counter_set, f"{where}[{index}].counterSet")
        yield from counters(one.counters, f"{where}[{index}].counters")
        yield from _compatibility_groups(one.compatibility_groups, f"{where}[{index}].compatibilityGroups")


def shown(found: Mapping[str, Counter]) -> dict[str, Any]:
    """The counters in the JSON of a message."""
    values = {name: {"value": str(Quantity.parse(found[name].value))} for name in sorted(found)}
    return {"counters": values} if values else {}


def _compatibility_groups(groups: Sequence[str], where: str) -> Iterator[FieldError]:
    if len(groups) > MAX_COMPATIBILITY_GROUPS:
        yield too_many(where, len(groups), MAX_COMPATIBILITY_GROUPS)
        return
    for index, group in enumerate(groups):
        yield from _label(group, f"{where}[{index}]")
        if group in groups[:index]:
            yield duplicate(f"{where}[{index}]", group)


def _label(name: str, where: str) -> Iterator[FieldError]:
    yield from (invalid(where, name, text) for text in names.dns_label_errors(name, unit="bytes"))
