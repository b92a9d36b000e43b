"""What types are called, by CEL and by Go, in messages."""

from __future__ import annotations

from typing import Any

from dra_driver.cel.evaluation.values import (
    Amount,
    Cidr,
    Duration,
    Err,
    GrowingList,
    IpAddress,
    ListValue,
    MapValue,
    NamedFormat,
    OptionalValue,
    TextMap,
    Timestamp,
    TypeValue,
    Uint,
    Url,
    Version,
)
from dra_driver.k8s.quantity import Quantity

_NAMES: dict[type, str] = {
    bool: "bool",
    bytes: "bytes",
    float: "double",
    int: "int",
    Uint: "uint",
    str: "string",
    type(None): "null_type",
    ListValue: "list",
    GrowingList: "list",
    MapValue: "map",
    TextMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    OptionalValue: "optional_type",
    Amount: "kubernetes.Quantity",
    Quantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
    IpAddress: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
}
_GO_NAMES: dict[type, str] = {
    Err: "*types.Err",
    bool: "types.Bool",
    bytes: "types.Bytes",
    float: "types.Double",
    int: "types.Int",
    Uint: "types.Uint",
    str: "types.String",
    type(None): "types.Null",
    ListValue: "*types.baseList",
    GrowingList: "*types.mutableList",
    MapValue: "*types.baseMap",
    TextMap: "*types.baseMap",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    TypeValue: "*types.Type",
    OptionalValue: "*types.Optional",
    Amount: "cel.Quantity",
    Quantity: "*cel.Quantity",
    Version: "cel.Semver",
    IpAddress: "cel.IP",
    Cidr: "cel.CIDR",
    Url: "cel.URL",
    NamedFormat: "cel.Format",
}


def type_name(value: Any) -> str:
    """The name of a value's type."""
    return _NAMES[type(value)]


def go_name(value: Any) -> str:
    """How Go's %T prints the value's type."""
    if type(value) is ListValue and value.joined:
        return "*types.concatList"
    if type(value) is TextMap and value.has_default:
        return "cel.mapper"
    return _GO_NAMES[type(value)]
