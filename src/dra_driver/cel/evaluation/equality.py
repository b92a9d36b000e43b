"""Equality, order and the size of values, as cel-go defines them; errors are returned, not raised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.network_values import Cidr, IpAddress, Url
from dra_driver.cel.evaluation.values import (
    MISSING,
    NO_OVERLOAD,
    Amount,
    Duration,
    Err,
    GrowingList,
    ListValue,
    MapValue,
    Message,
    NamedFormat,
    OptionalValue,
    TextMap,
    Timestamp,
    TypeValue,
    Uint,
    Version,
)
from dra_driver.cel.messages.wire import records
from dra_driver.k8s.quantity import Quantity

_NAN_ORDER = Err("NaN values cannot be ordered")
_NUMBERS = frozenset({int, float, Uint})


def equal(left: Any, right: Any) -> bool | Err:
    """The operator `==`: null equals null only; some types refuse to be compared with others."""
    if left is None or right is None:
        return left is right
    return _EQUALS[type(left)](left, right)


def same(left: Any, right: Any) -> bool | Err:
    """Equality inside containers: as `equal`, but a Quantity refuses null as well."""
    if left is None:
        return right is None
    return _EQUALS[type(left)](left, right)


def _scalar(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _number(left: Any, right: Any) -> bool:
    kind = type(right)
    if kind not in _NUMBERS:
        return False
    if type(left) is float or kind is float:
        return float(left) == float(right)
    return int(left) == int(right)


def _nanos(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left.nanos == right.nanos


def _type(left: TypeValue, right: Any) -> bool:
    return type(right) is TypeValue and left.name == right.name


def _optional(left: OptionalValue, right: Any) -> bool | Err:
    if type(right) is not OptionalValue:
        return False
    if not left.has_value or not right.has_value:
        return left.has_value == right.has_value
    return same(left.value, right.value)


def _list(left: ListValue, right: Any) -> bool | Err:
    if not isinstance(right, ListValue) or len(left) != len(right):
        return False
    problem: Err | None = None
    for mine, theirs in zip(left, right, strict=True):
        result = equal(mine, theirs)
        if result is False:
            return False
        if problem is None and isinstance(result, Err):
            problem = result
    return problem if problem is not None and left.joined else True


def _map(left: Any, right: Any) -> bool:
    if not isinstance(right, (MapValue, TextMap)) or len(left) != len(right):
        return False
    for key, mine in left.items():
        theirs = right.find(key)
        if theirs is MISSING or equal(mine, theirs) is False:
            return False
    return True


def _quantity(left: Quantity, right: Any) -> bool | Err:
    return left.compare(right) == 0 if type(right) is Amount else NO_OVERLOAD


def _version(left: Version, right: Any) -> bool | Err:
    return left.compare(right) == 0 if type(right) is Version else NO_OVERLOAD


def _address(left: Any, right: Any) -> bool | Err:
    return left.key == right.key if type(left) is type(right) else NO_OVERLOAD


def _url(left: Url, right: Any) -> bool | Err:
    return str(left.parts) == str(right.parts) if type(right) is Url else NO_OVERLOAD


def _by_number(unknown: bytes) -> dict[int, bytes]:
    """The bytes of each field; the order of different fields does not count."""
    found: dict[int, bytes] = {}
    for record in records(unknown):
        found[record.number] = found.get(record.number, b"") + record.raw
    return found


def _message(left: Message, right: Any) -> bool:
    """Of the same type, with equal fields, equal bytes that the type does not know included."""
    if type(right) is not Message or left.type_name != right.type_name or _by_number(left.unknown) != _by_number(right.unknown):
        return False
    set_fields = {name for name in left.fields if left.has(name)}
    return set_fields == {name for name in right.fields if right.has(name)} and all(
        same(left.fields[name], right.fields[name]) is True for name in set_fields
    )


def _format(left: NamedFormat, right: Any) -> bool | Err:
    return left.name == right.name if type(right) is NamedFormat else NO_OVERLOAD


_EQUALS: dict[type, Callable[[Any, Any], bool | Err]] = {
    bool: _scalar,
    str: _scalar,
    bytes: _scalar,
    int: _number,
    float: _number,
    Uint: _number,
    Duration: _nanos,
    Timestamp: _nanos,
    TypeValue: _type,
    OptionalValue: _optional,
    ListValue: _list,
    GrowingList: _list,
    MapValue: _map,
    TextMap: _map,
    Err: lambda left, _: left,
    Amount: _quantity,
    Quantity: _quantity,
    Version: _version,
    IpAddress: _address,
    Cidr: _address,
    Url: _url,
    NamedFormat: _format,
    Message: _message,
}


def contains(container: Any, element: Any) -> bool | Err:
    """The operator `in`."""
    if isinstance(container, ListValue):
        return any(same(element, other) is True for other in container)
    if isinstance(container, (MapValue, TextMap)):
        return container.has(element)
    return NO_OVERLOAD


def compare(left: Any, right: Any) -> int | Err:
    """-1, 0 or 1 for values of an ordered type (`ORDERED`)."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return _compare_numbers(left, right)
    if kind is float and math.isnan(left):
        return _NAN_ORDER
    if kind is not other:
        return NO_OVERLOAD
    if kind is Duration:
        left, right = left.nanos, right.nanos
    elif kind is Timestamp:
        left, right = left.order, right.order
    return int(left > right) - int(left < right)


def _compare_numbers(left: Any, right: Any) -> int | Err:
    if type(left) is float or type(right) is float:
        if math.isnan(left) or math.isnan(right):
            return _NAN_ORDER
        left, right = float(left), float(right)
    return int(left > right) - int(left < right)


ORDERED = frozenset({bool, bytes, float, Duration, int, str, Timestamp, Uint})
"""The types of Go's Comparer trait."""


def size(value: Any) -> int | None:
    """The number of characters, bytes, elements or entries; None for what has no size."""
    return len(value) if type(value) in SIZED else None


SIZED = frozenset({str, bytes, ListValue, GrowingList, MapValue, TextMap})
