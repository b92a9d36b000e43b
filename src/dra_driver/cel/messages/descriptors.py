"""The protobuf messages that every CEL environment knows: the well-known types of google.protobuf, as a table."""

from __future__ import annotations

from typing import Final, NamedTuple

PACKAGE: Final = "google.protobuf."
NULL_VALUE: Final = "google.protobuf.NullValue.NULL_VALUE"
"""The one enum value, a constant of the language."""

_TABLE = """
Any type_url:string value:bytes
BoolValue value:bool
BytesValue value:bytes
DoubleValue value:double
Duration seconds:int64 nanos:int32
Empty
FloatValue value:float
Int32Value value:int32
Int64Value value:int64
ListValue values:Value*
StringValue value:string
Struct fields:Struct.FieldsEntry*
Struct.FieldsEntry key:string value:Value
Timestamp seconds:int64 nanos:int32
UInt32Value value:uint32
UInt64Value value:uint64
Value null_value:NullValue number_value:double string_value:string bool_value:bool struct_value:Struct list_value:ListValue
"""
_GO_TYPES = {
    "bytes": "[]uint8",
    "double": "float64",
    "float": "float32",
    "NullValue": "protoreflect.EnumNumber",
    "ListValue": "*structpb.ListValue",
    "Struct": "*structpb.Struct",
    "Value": "*structpb.Value",
}


class Field(NamedTuple):
    """A field; its fields are numbered in their order. `kind` names a scalar, or a message of the package."""

    name: str
    kind: str
    repeated: bool

    @property
    def go_type(self) -> str:
        """What the field, or one element of it, is in Go."""
        return _GO_TYPES.get(self.kind, self.kind)


def _read() -> dict[str, dict[str, Field]]:
    found: dict[str, dict[str, Field]] = {}
    for line in _TABLE.strip().splitlines():
        name, *fields = line.split()
        pairs = [field.split(":") for field in fields]
        found[PACKAGE + name] = {field: Field(field, kind.rstrip("*"), kind.endswith("*")) for field, kind in pairs}
    return found


MESSAGES: Final = _read()
"""The fields of each message, by full name."""
EMPTY: Final = f"{PACKAGE}Empty"
FIELDS_ENTRY: Final = f"{PACKAGE}Struct.FieldsEntry"
