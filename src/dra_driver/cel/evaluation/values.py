"""CEL's run-time values.

bool, int, float, str and bytes are Python's; null is None; an unsigned integer is `Uint`. A Quantity or version that came from a device or a
literal is `Amount` or `Version`: comparing one with anything else is an error in Kubernetes, so `==` raises. The sum of two quantities is a
plain Quantity, because Kubernetes' code tells the two apart (`q == a.add(b)` is an error, `a.add(b) == q` is not).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)
MAX_UINT: Final = 2**64 - 1
_SECOND = 1_000_000_000
_YEAR_ONE = 62135596800 * _SECOND


class Value:
    """A value that Python has no type for: its class says what CEL and Go call its type."""

    __slots__ = ()
    type_name: str
    go_name: str


class Err(Value):
    """An error as a value: functions return it, && and || may absorb it."""

    __slots__ = ("text",)
    type_name = "error"
    go_name = "*types.Err"

    def __init__(self, text: str) -> None:
        self.text = text


NO_OVERLOAD: Final = Err("no such overload")


class PanicError(Exception):
    """What is a panic in Go: nothing absorbs it."""


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Amount(Quantity, Value):
    """A Quantity as a CEL value; `amount` orders it where it is not absurdly large."""

    __slots__ = ("amount",)
    type_name = "kubernetes.Quantity"
    go_name = "cel.Quantity"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.amount = self.scaled(-9, most=_MAX_AMOUNT_SCALE)

    def __eq__(self, other: object) -> bool:
        if type(other) is Amount:
            return self.compare(other) == 0
        raise TypeError("no such overload")

    __hash__ = Quantity.__hash__


_MAX_AMOUNT_SCALE = 60


class Version(Semver, Value):
    """A version as a CEL value; `precedence` orders it. Go cannot hash one, which selectors may notice."""

    __slots__ = ("precedence",)
    type_name = "kubernetes.Semver"
    go_name = "cel.Semver"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.precedence = self._key

    def __eq__(self, other: object) -> bool:
        if type(other) is Version:
            return self._key == other._key
        raise TypeError("no such overload")

    __hash__ = None  # type: ignore[assignment]


class Hashed(Value):
    """Common to the objects that are map keys by their value; others are keys by identity."""

    __slots__ = ()

    @property
    def key(self) -> Any:
        raise NotImplementedError


class TypeValue(Hashed):
    """A type as a value, known by its name alone."""

    __slots__ = ("name",)
    type_name = "type"
    go_name = "*types.Type"

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> Any:
        return self.name


class OptionalValue(Value):
    """An optional; `NONE` has no value."""

    __slots__ = ("has_value", "value")
    type_name = "optional_type"
    go_name = "*types.Optional"

    def __init__(self, value: Any, *, has_value: bool = True) -> None:
        self.value = value
        self.has_value = has_value


NONE: Final = OptionalValue(None, has_value=False)


class ListValue(list[Any], Value):
    """A list. `joined` marks the result of `+`, which compares its elements more strictly; `json` a google.protobuf.ListValue."""

    __slots__ = ("joined", "json")
    type_name = "list"
    go_name = "*types.baseList"

    def __init__(self, elements: Any = (), *, joined: bool = False, json: bool = False) -> None:
        super().__init__(elements)
        self.joined = joined
        self.json = json


class GrowingList(ListValue):
    """The accumulator of a comprehension that starts with an empty list: `+` extends it in place, as in cel-go."""

    __slots__ = ()
    go_name = "*types.mutableList"


Key = tuple[str, Any]


def key_of(value: Any) -> Key:
    """What distinguishes map keys: 1, 1u, 1.0 and true are four keys. Raises PanicError where Go cannot hash."""
    kind = type(value)
    if kind is float and value != value:  # noqa: PLR0124 - NaN, which no key equals
        return "nan", object()
    if kind in _KEY_KINDS:
        return _KEY_KINDS[kind], value
    if kind in _UNHASHABLE:
        raise PanicError(f"runtime error: hash of unhashable type {_UNHASHABLE[kind]}")
    if isinstance(value, Hashed):
        return kind.__name__, value.key
    return "object", id(value)


class MapValue(Value):
    """A map with keys of any kind, in the order of insertion."""

    __slots__ = ("_entries",)
    type_name = "map"
    go_name = "*types.baseMap"

    def __init__(self, pairs: Iterator[tuple[Any, Any]] | list[tuple[Any, Any]] = ()) -> None:  # type: ignore[assignment]
        self._entries: dict[Key, tuple[Any, Any]] = {key_of(key): (key, value) for key, value in pairs}

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: Any, value: Any) -> None:
        self._entries[key_of(key)] = (key, value)

    def drop(self, key: Any) -> None:
        self._entries.pop(key_of(key), None)

    def find(self, key: Any) -> Any:
        """The value, or MISSING. A number finds the key of equal value whatever its kind."""
        if not self._entries:
            return MISSING
        entry = self._entries.get(key_of(key))
        if entry is None:
            for other in _same_number(key):
                if (entry := self._entries.get(key_of(other))) is not None:
                    break
        return MISSING if entry is None else entry[1]

    def has(self, key: Any) -> bool:
        return self.find(key) is not MISSING

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries.values())

    def keys(self) -> list[Any]:
        return [key for key, _ in self._entries.values()]


class TextMap(Value):
    """A map with text keys over a mapping that is not copied; `default` is the value of unknown keys, for lookups only."""

    __slots__ = ("_default", "_mapping")
    type_name = "map"
    go_name = "*types.baseMap"

    def __init__(self, mapping: Mapping[str, Any], default: Any = None) -> None:
        self._mapping = mapping
        self._default = MISSING if default is None else default

    def __len__(self) -> int:
        return len(self._mapping)

    @property
    def has_default(self) -> bool:
        """Whether unknown keys have a value."""
        return self._default is not MISSING

    def find(self, key: Any) -> Any:
        value = self._mapping.get(key, MISSING) if type(key) is str else MISSING
        return self._default if value is MISSING else wrap(value)

    def has(self, key: Any) -> bool:
        return type(key) is str and key in self._mapping

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, wrap(value)) for key, value in self._mapping.items()]

    def keys(self) -> list[Any]:
        return list(self._mapping)


MISSING: Final = object()
"""No value: no such key."""


def wrap(value: Any) -> Any:
    """A value of a device as a CEL value: nested mappings are maps, sequences lists."""
    kind = type(value)
    if kind is dict:
        return TextMap(value)
    return ListValue(value) if kind is tuple else value


class Duration(Hashed):
    """Nanoseconds."""

    __slots__ = ("nanos",)
    type_name = "google.protobuf.Duration"
    go_name = "types.Duration"

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    @property
    def key(self) -> Any:
        return self.nanos


class Zone(int):
    """The offset of a zone that Go makes anew for each time that it reads: as map keys, equal times of two of them are two keys."""

    __slots__ = ()


class Timestamp(Hashed):
    """Nanoseconds since 1970 and the zone in which it was written (its offset in seconds), which only printing and map keys show."""

    __slots__ = ("nanos", "offset")
    type_name = "google.protobuf.Timestamp"
    go_name = "types.Timestamp"

    def __init__(self, nanos: int, offset: int = 0) -> None:
        self.nanos = nanos
        self.offset = offset

    @property
    def key(self) -> Any:
        return self.nanos, id(self.offset) if type(self.offset) is Zone else self.offset

    @property
    def order(self) -> int:
        """What Go compares: seconds since the year 1, which overflow in times that only a message can hold."""
        return (self.nanos - MIN_INT * _SECOND + _YEAR_ONE) % (2**64 * _SECOND)


class Message(Value):
    """A protobuf message that is no other CEL value: google.protobuf.Empty, or an entry of a Struct's fields."""

    __slots__ = ("fields", "go_type", "type_name", "unknown")
    go_name = "*types.protoObj"

    def __init__(self, type_name: str, fields: Mapping[str, Any], unknown: bytes = b"", go_type: str = "*dynamicpb.Message") -> None:
        """`unknown` are the bytes that the type says nothing about."""
        self.type_name = type_name
        self.fields = fields
        self.unknown = unknown
        self.go_type = go_type

    def has(self, field: str) -> bool:
        """Whether the field is set: a scalar to something else than its default."""
        return field in self.fields and (field != "key" or bool(self.fields[field]))

    def get(self, field: str) -> Any:
        """The field or its default."""
        return self.fields.get(field, "" if field == "key" else None)


class NamedFormat(Value):
    """One of Kubernetes' named formats."""

    __slots__ = ("max_regex_size", "name", "problems")
    type_name = "kubernetes.NamedFormat"
    go_name = "cel.Format"

    def __init__(self, name: str, problems: Any, max_regex_size: int) -> None:
        self.name = name
        self.problems = problems
        self.max_regex_size = max_regex_size


_KEY_KINDS: dict[type, str] = {str: "string", int: "int", Uint: "uint", float: "double", bool: "bool", type(None): "null"}
_UNHASHABLE: dict[type, str] = {bytes: "types.Bytes", Version: "cel.Semver", NamedFormat: "cel.Format"}


def double_to_int(value: float) -> int | None:
    """The whole number, if the double is one of 64 bits that converts without loss."""
    if not -(2.0**63) < value < 2.0**63 or value != (whole := int(value)):
        return None
    return whole


def double_to_uint(value: float) -> Uint | None:
    """As `double_to_int`, unsigned."""
    if not 0 <= value < 2.0**64 or value != (whole := int(value)):
        return None
    return Uint(whole)


def _same_number(key: Any) -> list[Any]:
    kind = type(key)
    if kind is float:
        return [number for number in (double_to_int(key), double_to_uint(key)) if number is not None]
    if kind is int:
        return [Uint(key)] if key >= 0 else []
    if kind is Uint:
        return [int(key)] if key <= MAX_INT else []
    return []
