"""The static types of protobuf's well-known messages: wrappers are nullable scalars, JSON's messages are dyn, lists and maps."""

from __future__ import annotations

from typing import Final

from dra_driver.cel.checking import types
from dra_driver.cel.checking.types import Type
from dra_driver.cel.messages.descriptors import EMPTY, FIELDS_ENTRY, MESSAGES, PACKAGE, Field

_SCALARS = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "float": types.DOUBLE,
    "int32": types.INT,
    "int64": types.INT,
    "NullValue": types.INT,
    "string": types.STRING,
    "uint32": types.UINT,
    "uint64": types.UINT,
}
_SPECIAL = {
    "Any": types.ANY,
    "Duration": types.DURATION,
    "ListValue": types.list_of(types.DYN),
    "Struct": types.map_of(types.STRING, types.DYN),
    "Timestamp": types.TIMESTAMP,
    "Value": types.DYN,
}


def _message_type(name: str) -> Type:
    if name in (EMPTY, FIELDS_ENTRY):
        return Type("struct", name)
    special = _SPECIAL.get(name.removeprefix(PACKAGE))
    if special is not None:
        return special
    wrapped = _SCALARS[MESSAGES[name]["value"].kind]
    return Type(wrapped.kind, wrapped.name, nullable=True)


MESSAGE_TYPES: Final = {name: _message_type(name) for name in MESSAGES}
"""The type that each message is to the checker."""

_NAME_OF_KIND = {
    "any": "Any",
    "bool": "BoolValue",
    "bytes": "BytesValue",
    "double": "DoubleValue",
    "duration": "Duration",
    "dyn": "Value",
    "int": "Int64Value",
    "list": "ListValue",
    "map": "Struct",
    "null": "NullValue",
    "string": "StringValue",
    "timestamp": "Timestamp",
    "uint": "UInt64Value",
}


def well_known_name(t: Type) -> str | None:
    """The message whose fields `name{…}` takes where the name stands for a type that has one; no message is called NullValue."""
    if t.kind in ("any", "timestamp", "duration", "dyn", "null"):
        known = True
    elif t.kind == "list":
        known = t.params[0] is types.DYN
    elif t.kind == "map":
        known = t.params[0] is types.STRING and t.params[1] is types.DYN
    else:
        known = t.nullable
    return PACKAGE + _NAME_OF_KIND[t.kind] if known else None


def field_type(message: str, field: str) -> Type | None:
    """The type of a message's field."""
    found = MESSAGES[message].get(field)
    return None if found is None else _field_type(found)


def _field_type(field: Field) -> Type:
    if field.kind == "Struct.FieldsEntry":
        return _SPECIAL["Struct"]
    if field.repeated:
        return _SPECIAL["ListValue"]
    return _SCALARS.get(field.kind) or _SPECIAL[field.kind]
