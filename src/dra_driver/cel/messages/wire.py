"""Reads messages in protobuf's wire format, which is what a google.protobuf.Any carries."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dra_driver.cel.evaluation.values import ListValue, TextMap, Uint
from dra_driver.cel.messages.descriptors import MESSAGES, PACKAGE, Field

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
_MAX_FIELD_NUMBER = 2**29 - 1
_MAX_DEPTH = 10_000
_FIXED = {FIXED64: 8, FIXED32: 4}


class WireError(Exception):
    """The bytes are no message of the type."""


class Record(NamedTuple):
    """One field as it stands in the bytes; `raw` is all of it, tag included."""

    number: int
    wire_type: int
    value: Any
    raw: bytes


def records(data: bytes) -> Iterator[Record]:
    """The fields one after the other. Raises WireError."""
    pos = 0
    while pos < len(data):
        start = pos
        number, wire_type, pos = _tag(data, pos)
        value, pos = _value(data, pos, number, wire_type, _MAX_DEPTH)
        yield Record(number, wire_type, value, data[start:pos])


def _tag(data: bytes, pos: int) -> tuple[int, int, int]:
    tag, pos = _varint(data, pos)
    number = tag >> 3
    if not 1 <= number <= _MAX_FIELD_NUMBER:
        raise WireError
    return number, tag & 7, pos


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if pos >= len(data):
            raise WireError
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise WireError
    if value >= 2**64:
        raise WireError
    return value, pos


def _value(data: bytes, pos: int, number: int, wire_type: int, depth: int) -> tuple[Any, int]:
    if wire_type == VARINT:
        return _varint(data, pos)
    if wire_type == GROUP:
        return None, _group_end(data, pos, number, depth)
    if wire_type == BYTES:
        size, pos = _varint(data, pos)
    elif wire_type in _FIXED:
        size = _FIXED[wire_type]
    else:
        raise WireError
    if size > len(data) - pos:
        raise WireError
    return data[pos : pos + size], pos + size


def _group_end(data: bytes, pos: int, number: int, depth: int) -> int:
    """A group is skipped, whatever it holds."""
    if depth <= 0:
        raise WireError
    while True:
        inner, wire_type, pos = _tag(data, pos)
        if wire_type == END_GROUP:
            if inner != number:
                raise WireError
            return pos
        _, pos = _value(data, pos, inner, wire_type, depth - 1)


def _signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError from None


_SCALARS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "bool": (VARINT, bool),
    "bytes": (BYTES, bytes),
    "double": (FIXED64, lambda value: struct.unpack("<d", value)[0]),
    "float": (FIXED32, lambda value: struct.unpack("<f", value)[0]),
    "int32": (VARINT, lambda value: _signed(value, 32)),
    "int64": (VARINT, lambda value: _signed(value, 64)),
    "NullValue": (VARINT, lambda value: _signed(value, 32)),
    "string": (BYTES, _text),
    "uint32": (VARINT, lambda value: Uint(value & 0xFFFFFFFF)),
    "uint64": (VARINT, Uint),
}


class Decoded(NamedTuple):
    """A message's fields as `native.to_native` gives them, and what it does not know."""

    fields: dict[str, Any]
    unknown: bytes


def decode(name: str, data: bytes, depth: int = _MAX_DEPTH) -> Decoded:
    """Raises WireError."""
    if depth <= 0:
        raise WireError
    by_number = dict(enumerate(MESSAGES[name].values(), 1))
    fields: dict[str, Any] = {}
    parts: dict[str, bytes] = {}
    unknown = b""
    for record in records(data):
        field = by_number.get(record.number)
        wire_type, read = _SCALARS.get(field.kind, (BYTES, None)) if field else (None, None)
        if field is None or record.wire_type != wire_type:
            unknown += record.raw
            continue
        if name == f"{PACKAGE}Value":  # a field of its oneof replaces the others
            fields = {}
            parts = {key: value for key, value in parts.items() if key == field.name}
        if read is not None:
            fields[field.name] = read(record.value)
        elif field.repeated:
            _append(fields, field, record.value, depth - 1)
        else:  # parts of a message are merged by joining their bytes
            parts[field.name] = parts.get(field.name, b"") + record.value
            fields[field.name] = json_value(field.kind, decode(PACKAGE + field.kind, parts[field.name], depth - 1))
    return Decoded(fields, unknown)


def _append(fields: dict[str, Any], field: Field, data: bytes, depth: int) -> None:
    decoded = decode(PACKAGE + field.kind, data, depth)
    if field.kind == "Value":
        fields.setdefault(field.name, ListValue(json=True)).append(json_value("Value", decoded))
    else:
        fields.setdefault(field.name, {})[decoded.fields.get("key", "")] = decoded.fields.get("value")


def json_value(kind: str, decoded: Decoded) -> Any:
    """A message of JSON as the CEL value that it is."""
    fields = decoded.fields
    if kind == "Struct":
        return TextMap(fields.get("fields", {}))
    if kind == "ListValue":
        return fields.get("values", ListValue(json=True))
    if not fields:
        return None
    chosen, value = next(reversed(fields.items()))
    return None if chosen == "null_value" else value
