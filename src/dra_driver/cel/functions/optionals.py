"""Optional values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.arithmetic import MIN_UNIX, SECOND
from dra_driver.cel.evaluation.go_text import show
from dra_driver.cel.evaluation.values import NONE, Duration, Err, ListValue, MapValue, Message, OptionalValue, TextMap, Timestamp


def _is_zero(value: Any) -> bool:
    if isinstance(value, (ListValue, MapValue)):
        return not len(value)
    if type(value) is TextMap:
        return not len(value) and not value.has_default
    if type(value) is Message:
        return not value.unknown and not any(map(value.has, value.fields))
    if type(value) is Duration:
        return value.nanos == 0
    if type(value) is Timestamp:
        return value.nanos == MIN_UNIX * SECOND
    return isinstance(value, (bool, int, float, str, bytes, type(None))) and not value


def _value(optional: OptionalValue) -> Any:
    return optional.value if optional.has_value else Err("optional.none() dereference")


def _at(index: int) -> Callable[[ListValue], OptionalValue]:
    return lambda elements: OptionalValue(elements[index]) if elements else NONE


def _unwrap(elements: ListValue) -> Any:
    found = ListValue()
    for element in elements:
        if type(element) is not OptionalValue:
            return Err(f"value {show(element)} is not optional")
        if element.has_value:
            found.append(element.value)
    return found


OVERLOADS: dict[str, Callable[..., Any]] = {
    "optional_of": OptionalValue,
    "optional_ofNonZeroValue": lambda value: NONE if _is_zero(value) else OptionalValue(value),
    "optional_none": lambda: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda optional: optional.has_value,
    "list_first": _at(0),
    "list_last": _at(-1),
    "optional_unwrap": _unwrap,
    "optional_unwrapOpt": _unwrap,
}
