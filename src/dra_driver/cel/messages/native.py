"""CEL values as what a field of a message holds in Go: scalars of its size, JSON values.

A JSON value is a CEL value itself: null, a bool, a double, a string, a list or a map with text keys.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

from dra_driver.cel.evaluation import conversions, go_numbers
from dra_driver.cel.evaluation.arithmetic import INT_OVERFLOW, UINT_OVERFLOW
from dra_driver.cel.evaluation.network_values import Cidr, IpAddress, Url
from dra_driver.cel.evaluation.type_names import refusal, shown_type
from dra_driver.cel.evaluation.values import (
    Amount,
    Duration,
    Err,
    ListValue,
    MapValue,
    Message,
    OptionalValue,
    PanicError,
    TextMap,
    Timestamp,
    TypeValue,
    Uint,
    Version,
)
from dra_driver.k8s.quantity import Quantity

_MAX_JSON_INT = 2**53 - 1
_TEXTS = frozenset({Amount, Quantity, Version, Url, IpAddress, Cidr})
_GO_STRUCTS: dict[type, str] = {
    Amount: "*resource.Quantity",
    Quantity: "*resource.Quantity",
    Version: "semver.Version",
    Url: "*url.URL",
    IpAddress: "netip.Addr",
    Cidr: "netip.Prefix",
}


class NativeError(Exception):
    """The value cannot be converted; the text is cel-go's."""


def to_native(value: Any, target: str) -> Any:
    """The value as one of a Go type of `CONVERSIONS`. Raises NativeError."""
    if type(value) is OptionalValue:
        if not value.has_value:
            raise NativeError("optional.none() dereference")
        return to_native(value.value, target)
    return CONVERSIONS[target](value, target)


def _exactly(kind: type) -> Callable[[Any, str], Any]:
    def convert(value: Any, target: str) -> Any:
        if type(value) is not kind:
            raise NativeError(refusal(value, target))
        return value

    return convert


def _within(kind: type[int], least: int, most: int, overflow: str) -> Callable[[Any, str], Any]:
    def convert(value: Any, target: str) -> Any:
        if type(value) is not kind:
            raise NativeError(refusal(value, target))
        if not least <= value <= most:
            raise NativeError(overflow)
        return value

    return convert


def _float32(value: Any, target: str) -> float:
    if type(value) is not float:
        raise NativeError(refusal(value, target))
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _string(value: Any, target: str) -> str:
    if type(value) is str:
        return value
    if type(value) not in _TEXTS:
        raise NativeError(refusal(value, target))
    return str(value.parts if type(value) is Url else value)


def _bytes(value: Any, target: str) -> bytes:
    """Bytes, or a list of unsigned integers."""
    if type(value) is bytes:
        return value
    if not isinstance(value, ListValue):
        raise NativeError(refusal(value, target))
    return bytes(to_native(element, "uint8") for element in _elements(value))


def _elements(values: ListValue) -> Iterator[Any]:
    """Go converts the elements of joined lists to what they hold and back."""
    return map(through_go, values) if values.joined else iter(values)


def opened(value: Any) -> Any:
    """As `through_go`, with an Err instead of the exception."""
    try:
        return through_go(value)
    except NativeError as error:
        return Err(str(error))


def through_go(value: Any) -> Any:
    """What is left of a value that becomes what it holds in Go, and a CEL value again. Raises NativeError where that cannot be."""
    if type(value) is OptionalValue:
        return through_go(value.value) if value.has_value else None
    if type(value) is TypeValue:
        return value.name
    held = _GO_STRUCTS.get(type(value))
    if held is not None:
        raise NativeError(f"unsupported conversion to ref.Val: ({held}){_string(value, '')}")
    return value


# JSON


def _json(value: Any, target: str) -> Any:
    kind = type(value)
    if kind in (bool, float, str) or value is None:
        return value
    if kind is int or kind is Uint:
        return float(value) if abs(value) <= _MAX_JSON_INT else str(int(value))
    if kind is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, ListValue):
        return _json_list(value)
    if isinstance(value, (MapValue, TextMap)):
        return _json_struct(value)
    if kind is Duration or kind is Timestamp:
        return conversions.to_string(value)
    if kind is Message:
        _check_json(value.get("value"))
        return TextMap({name: inner for name, inner in value.fields.items() if value.has(name)})
    raise NativeError(refusal(value, target))


def _check_json(value: Any) -> None:
    """What must become the text of JSON cannot hold doubles that JSON has not."""
    if type(value) is float and not math.isfinite(value):
        raise NativeError(f"proto: google.protobuf.Value.number_value: invalid {go_numbers.general(value)} value")
    if isinstance(value, ListValue):
        for element in value:
            _check_json(element)
    elif isinstance(value, TextMap):
        for _, inner in sorted(value.items()):
            _check_json(inner)


def _json_list(values: ListValue) -> ListValue:
    return ListValue([to_native(element, "*structpb.Value") for element in _elements(values)], json=True)


def _json_struct(entries: MapValue | TextMap) -> TextMap:
    return TextMap({to_native(key, "string"): to_native(value, "*structpb.Value") for key, value in entries.items()})


def _no_merge(value: Message, wanted: str) -> NativeError:
    return NativeError(f"type conversion error: pb.Merge() arguments must be the same type. got: {wanted}, {value.type_name}")


def _struct(value: Any, target: str) -> TextMap:
    if isinstance(value, (MapValue, TextMap)):
        return _json_struct(value)
    raise _no_merge(value, "google.protobuf.Struct") if type(value) is Message else NativeError(refusal(value, target))


def _list_value(value: Any, target: str) -> ListValue:
    """A list, or a map that spells the Go struct's only field."""
    if isinstance(value, ListValue):
        return _json_list(value)
    if not isinstance(value, (MapValue, TextMap)):
        raise _no_merge(value, "google.protobuf.ListValue") if type(value) is Message else NativeError(refusal(value, target))
    found = ListValue(json=True)
    for key, inner in value.items():
        name = _camel_case(_key_text(key))
        if name != "Values":
            raise NativeError(f"type conversion error, no such field '{name}' in type 'structpb.ListValue'")
        found = to_native(inner, "[]*structpb.Value")
    return found


def _values(value: Any, target: str) -> ListValue:
    if type(value) is bytes:
        raise PanicError(f"reflect.Value.Convert: value of type types.Bytes cannot be converted to type {target}")
    if not isinstance(value, ListValue):
        raise NativeError(refusal(value, target))
    return _json_list(value)


def _key_text(key: Any) -> str:
    if key is None:
        return "null"
    if type(key) in (OptionalValue, Message, Amount, Quantity, Url, ListValue, MapValue, TextMap):
        raise NativeError(f"type conversion error from '{shown_type(key)}' to 'string'")
    return str(conversions.to_string(key))


def _camel_case(name: str) -> str:
    """A Go field's name."""
    camel: list[str] = []
    previous = ""
    for char in name.strip():
        if char not in "_-":
            if previous in ("", "_", "-"):
                camel.append(char.upper() if len(char.upper()) == 1 else char)
            elif "a" <= previous <= "z":
                camel.append(char)
            else:
                camel.append(char.lower() if len(char.lower()) == 1 else char)
        previous = char
    return "".join(camel)


_INT_TEXT, _UINT_TEXT = INT_OVERFLOW.text, UINT_OVERFLOW.text

CONVERSIONS: dict[str, Callable[[Any, str], Any]] = {
    "bool": _exactly(bool),
    "float64": _exactly(float),
    "float32": _float32,
    "int64": _exactly(int),
    **dict.fromkeys(("int32", "protoreflect.EnumNumber"), _within(int, -(2**31), 2**31 - 1, _INT_TEXT)),
    "uint64": _exactly(Uint),
    "uint32": _within(Uint, 0, 2**32 - 1, _UINT_TEXT),
    "uint8": _within(Uint, 0, 2**8 - 1, _UINT_TEXT),
    "string": _string,
    "[]uint8": _bytes,
    "*structpb.Value": _json,
    "*structpb.Struct": _struct,
    "*structpb.ListValue": _list_value,
    "[]*structpb.Value": _values,
}
"""By Go type."""
