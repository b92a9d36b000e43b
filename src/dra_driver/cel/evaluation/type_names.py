"""What types are called, by CEL and by Go, in messages."""

from __future__ import annotations

from typing import Any

from dra_driver.cel.evaluation.values import ListValue, MapValue, Message, OptionalValue, TextMap, TypeValue, Uint
from dra_driver.k8s.quantity import Quantity

_NAMES: dict[type, str] = {
    bool: "bool",
    bytes: "bytes",
    float: "double",
    int: "int",
    Uint: "uint",
    str: "string",
    type(None): "null_type",
    Quantity: "kubernetes.Quantity",
}
_GO_NAMES: dict[type, str] = {
    bool: "types.Bool",
    bytes: "types.Bytes",
    float: "types.Double",
    int: "types.Int",
    Uint: "types.Uint",
    str: "types.String",
    type(None): "types.Null",
    Quantity: "*cel.Quantity",
}
_REFUSALS: dict[type, str] = {
    bool: "type conversion error from bool to '{}'",
    bytes: "type conversion error from Bytes to '{}'",
    float: "type conversion error from Double to '{}'",
    int: "unsupported type conversion from 'int' to {}",
    Uint: "unsupported type conversion from 'uint' to {}",
    str: "unsupported native conversion from string to '{}'",
    type(None): "type conversion error from 'null_type' to '{}'",
    TypeValue: "type conversion not supported for 'type'",
}


def type_name(value: Any) -> str:
    """The name of a value's type."""
    return _NAMES.get(type(value)) or str(value.type_name)


def go_name(value: Any) -> str:
    """How Go's %T prints the value's type."""
    if type(value) is ListValue and value.joined:
        return "*types.concatList"
    if type(value) is TextMap and value.has_default:
        return "cel.mapper"
    return _GO_NAMES.get(type(value)) or str(value.go_name)


def shown_type(value: Any) -> str:
    """A value's type as Go prints it."""
    if isinstance(value, ListValue):
        return "list(dyn)"
    if isinstance(value, OptionalValue):
        return "optional_type(dyn)"
    return "map(dyn, dyn)" if isinstance(value, (MapValue, TextMap)) else type_name(value)


def refusal(value: Any, target: str) -> str:
    """What cel-go says where a value cannot become one of a Go type."""
    text = _REFUSALS.get(type(value))
    if text is not None:
        return text.format(target)
    name = type_name(value)
    source = name if name in ("list", "map") else f"'{value.go_type if type(value) is Message else go_name(value).rpartition('.')[2]}'"
    return f"type conversion error from {source} to '{target}'"
