"""What `google.protobuf.…{…}` gives: wrappers, times and JSON are CEL values at once, an Any is what it carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.cel.evaluation.arithmetic import SECOND
from dra_driver.cel.evaluation.type_names import shown_type
from dra_driver.cel.evaluation.values import MAX_INT, MIN_INT, Duration, Err, ListValue, MapValue, Message, TextMap, Timestamp, Uint
from dra_driver.cel.messages import text, wire
from dra_driver.cel.messages.descriptors import EMPTY, FIELDS_ENTRY, MESSAGES, PACKAGE, Field
from dra_driver.cel.messages.native import NativeError, to_native
from dra_driver.cel.syntax.recursion import make_room

_ZEROES = {"bool": False, "bytes": b"", "double": 0.0, "float": 0.0, "int32": 0, "int64": 0, "string": "", "uint32": Uint(0), "uint64": Uint(0)}


def build(name: str, values: Mapping[str, Any]) -> Any:
    """The message as a CEL value, or an Err."""
    fields: dict[str, Any] = {}
    for field_name, value in values.items():
        try:
            converted = _field(name, MESSAGES[name][field_name], value)
        except NativeError as error:
            return Err(f"field type conversion error for {name}.{field_name} value type: {error}")
        if isinstance(converted, Err):
            return converted
        fields[field_name] = converted
    return _value(name, fields)


def _field(message: str, field: Field, value: Any) -> Any:
    if not field.repeated:
        return to_native(value, field.go_type)
    if isinstance(value, (MapValue, TextMap)) and field.kind == "Struct.FieldsEntry":
        return {to_native(key, "string"): to_native(inner, "*structpb.Value") for key, inner in value.items()}
    if isinstance(value, ListValue) and field.kind == "Value":
        return ListValue([to_native(element, field.go_type) for element in value], json=True)
    return Err(f"unsupported field type for {message}.{field.name}: {shown_type(value)}")


def _value(name: str, fields: dict[str, Any], carried: bytes | None = None) -> Any:
    """`carried` is what a message in an Any does not know of itself."""
    special = _SPECIAL.get(name.removeprefix(PACKAGE))
    if special is not None:
        return special(fields)
    if name == EMPTY:
        return Message(name, fields) if carried is None else Message(name, fields, carried, "*emptypb.Empty")
    if name == FIELDS_ENTRY:
        return Message(name, fields)
    return fields.get("value", _ZEROES[MESSAGES[name]["value"].kind])


def _any(fields: dict[str, Any]) -> Any:
    """What an Any carries, or what Go says where it cannot be read."""
    type_url, data = fields.get("type_url", ""), fields.get("value", b"")
    name, inner = type_url.rpartition("/")[2], data
    make_room(len(data))  # it may nest that deep
    try:
        while name == f"{PACKAGE}Any":
            found = wire.decode(name, inner).fields
            name, inner = found.get("type_url", "").rpartition("/")[2], found.get("value", b"")
        if name in MESSAGES and name != FIELDS_ENTRY:
            decoded = wire.decode(name, inner)
            return _value(name, decoded.fields, decoded.unknown)
    except wire.WireError:
        pass
    return Err(f"unsupported conversion to ref.Val: (*dynamicpb.Message){text.any_text(type_url, data)}")


def _duration(fields: dict[str, Any]) -> Duration:
    """The sum, or the longest duration of that sign."""
    seconds, nanos = fields.get("seconds", 0), fields.get("nanos", 0)
    whole = seconds * SECOND
    if MIN_INT <= whole <= MAX_INT and MIN_INT <= whole + nanos <= MAX_INT:
        return Duration(whole + nanos)
    return Duration(MIN_INT if seconds < 0 else MAX_INT)


def _timestamp(fields: dict[str, Any]) -> Timestamp:
    """Any number of seconds is a time, even one that no text can say."""
    seconds, nanos = divmod(fields.get("seconds", 0) * SECOND + fields.get("nanos", 0), SECOND)
    return Timestamp((seconds - MIN_INT) % 2**64 * SECOND + MIN_INT * SECOND + nanos)


def _json(kind: str) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: wire.json_value(kind, wire.Decoded(fields, b""))


_SPECIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Any": _any,
    "Duration": _duration,
    "Timestamp": _timestamp,
    "Struct": _json("Struct"),
    "ListValue": _json("ListValue"),
    "Value": _json("Value"),
}
