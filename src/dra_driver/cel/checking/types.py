"""Static types, and how cel-go prints them: `str(t)` as in results ("google.protobuf.Any"), `t.shown()` as in error texts ("any")."""

from __future__ import annotations

from typing import Final


class Type:
    """A static type. Two types are the same when `same` says so; instances without parameters are mostly shared."""

    __slots__ = ("generic", "kind", "name", "nullable", "params")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = (), *, nullable: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.nullable = nullable
        self.generic: bool = kind == "param" or any(param.generic for param in params)

    def same(self, other: Type, *, names_of_params: bool = True) -> bool:
        """Equal kind, name and parameters; without `names_of_params` all type parameters are alike."""
        if self is other:
            return True
        if self.kind != other.kind or len(self.params) != len(other.params):
            return False
        if (names_of_params or self.kind != "param") and self.name != other.name:
            return False
        return all(mine.same(theirs, names_of_params=names_of_params) for mine, theirs in zip(self.params, other.params, strict=True))

    def accepts(self, other: Type) -> bool:
        """Whether a value of type `other` may stand where this type is declared, without type parameters."""
        if self.nullable and other.kind == "null":
            return True
        if self is other or self.kind in ("dyn", "any", "param"):
            return True
        if self.kind != other.kind or self.name != other.name or len(self.params) != len(other.params):
            return False
        return all(mine.accepts(theirs) for mine, theirs in zip(self.params, other.params, strict=True))

    @property
    def declared_name(self) -> str:
        """The name, marked where null is allowed as well."""
        return f"wrapper({self.name})" if self.nullable else self.name

    def shown(self) -> str:
        """As in an error text of the checker."""
        short = _SHORT.get(self.kind)
        if short is not None:
            return short
        if self.kind == "param" or not self.params:
            return self.declared_name
        return f"{self.name}({', '.join(param.shown() for param in self.params)})"

    def __str__(self) -> str:
        if self.kind == "param":
            return f"<{self.name}>"
        return f"{self.declared_name}({', '.join(str(param) for param in self.params)})" if self.params else self.declared_name

    __repr__ = __str__


_SHORT = {"any": "any", "duration": "duration", "error": "!error!", "null": "null", "timestamp": "timestamp"}

ANY: Final = Type("any", "google.protobuf.Any")
BOOL: Final = Type("bool", "bool")
BYTES: Final = Type("bytes", "bytes")
DOUBLE: Final = Type("double", "double")
DURATION: Final = Type("duration", "google.protobuf.Duration")
DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "error")
INT: Final = Type("int", "int")
NULL: Final = Type("null", "null_type")
STRING: Final = Type("string", "string")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
TYPE: Final = Type("type", "type")
UINT: Final = Type("uint", "uint")

QUANTITY: Final = Type("struct", "kubernetes.Quantity")
SEMVER: Final = Type("struct", "kubernetes.Semver")
URL: Final = Type("struct", "kubernetes.URL")
FORMAT: Final = Type("struct", "kubernetes.NamedFormat")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "type", (value,))


def parameter(name: str) -> Type:
    return Type("param", name)


def is_dyn(t: Type) -> bool:
    return t.kind in ("dyn", "any")


def unwrap_optional(t: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether there was one."""
    if t.kind == "opaque" and t.name == "optional_type":
        return t.params[0], True
    return t, False
