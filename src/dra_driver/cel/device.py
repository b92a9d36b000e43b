"""A device as selectors see it: driver, attributes and capacities by domain and name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Protocol

from dra_driver.cel.evaluation.values import MAX_INT, Amount, TextMap, Version
from dra_driver.errors import ParseError

_NO_VALUE = "unsupported attribute value"
_NOTHING: dict[str, Any] = {}
_LISTS = frozenset({"ints", "bools", "strings", "versions"})
_FIELDS = ("ints", "bools", "strings", "versions", "int", "bool", "string", "version")
"""The fields of an attribute in the order in which Kubernetes looks for the one that is set."""
_SLOTS = tuple((field, f"{field}_" if field in ("int", "bool") else field) for field in _FIELDS)


class AttributeLike(Protocol):
    """A DeviceAttribute of the API: exactly one field is set."""

    @property
    def int_(self) -> int | None: ...
    @property
    def bool_(self) -> bool | None: ...
    @property
    def string(self) -> str | None: ...
    @property
    def version(self) -> str | None: ...
    @property
    def ints(self) -> list[int] | None: ...
    @property
    def bools(self) -> list[bool] | None: ...
    @property
    def strings(self) -> list[str] | None: ...
    @property
    def versions(self) -> list[str] | None: ...


class CapacityLike(Protocol):
    """A DeviceCapacity of the API."""

    @property
    def value(self) -> str: ...


class DeviceLike(Protocol):
    """A device of a ResourceSlice."""

    @property
    def attributes(self) -> Mapping[str, AttributeLike]: ...
    @property
    def capacity(self) -> Mapping[str, CapacityLike]: ...
    @property
    def allow_multiple_allocations(self) -> bool | None: ...


class Device:
    """Immutable; make it once per device of a slice, not per evaluation.

    `problem` says why every selector fails on it (an attribute that is no version), as the scheduler would; `scalar_problem` says it for a
    Kubernetes that knows no list attributes. `inputs` and `scalar_inputs` are what compiled selectors take, None where they must not be used.
    """

    __slots__ = (
        "allow_multiple_allocations",
        "attributes",
        "capacity",
        "driver",
        "inputs",
        "problem",
        "scalar_inputs",
        "scalar_problem",
        "variables",
    )

    def __init__(self, driver: str, attributes: Mapping[str, Any], capacity: Mapping[str, str], allow_multiple_allocations: bool | None) -> None:
        """Attribute values are int, bool, str, Version or a tuple of these; a capacity is the text of a Quantity. Raises ParseError for a bad one."""
        self.driver = driver
        self.allow_multiple_allocations = bool(allow_multiple_allocations)
        self.problem = ""
        self.scalar_problem = next((_unsupported(name) for name, value in attributes.items() if type(value) is tuple), "")
        self.attributes = _by_domain(driver, attributes)
        self.capacity = _by_domain(driver, {name: _amount(driver, name, text) for name, text in capacity.items()})
        self.inputs = (driver, self.allow_multiple_allocations, self.attributes, self.capacity) if self._is_usual() else None
        self.scalar_inputs = None if self.scalar_problem else self.inputs
        self.variables = {
            "device": TextMap(
                {
                    "driver": driver,
                    "allowMultipleAllocations": self.allow_multiple_allocations,
                    "attributes": TextMap(self.attributes, TextMap(_NOTHING)),
                    "capacity": TextMap(self.capacity, TextMap(_NOTHING)),
                }
            )
        }

    @classmethod
    def from_api(cls, driver: str, device: Mapping[str, Any]) -> Device:
        """From the API's JSON of one device; a capacity may be abbreviated to its text. `driver` is that of the slice."""
        attributes = [(name, *_held(fields)) for name, fields in (device.get("attributes") or {}).items()]
        capacity = {name: value if isinstance(value, str) else value["value"] for name, value in (device.get("capacity") or {}).items()}
        return cls._made(driver, attributes, capacity, device.get("allowMultipleAllocations"))

    @classmethod
    def from_slice(cls, driver: str, device: DeviceLike) -> Device:
        """From a device of a decoded ResourceSlice."""
        attributes = [(name, *_held_by_struct(value)) for name, value in device.attributes.items()]
        capacity = {name: value.value for name, value in device.capacity.items()}
        return cls._made(driver, attributes, capacity, device.allow_multiple_allocations)

    @classmethod
    def _made(cls, driver: str, attributes: list[tuple[str, str, Any]], capacity: Mapping[str, str], multiple: bool | None) -> Device:
        values: dict[str, Any] = {}
        problem = scalar_problem = ""
        for name, field, raw in sorted(attributes, key=itemgetter(0)):
            found = ""
            try:
                values[name] = _value(field, raw)
            except ParseError as error:
                found = f"attribute {name}: {error}"
            problem = problem or found
            scalar_problem = scalar_problem or (_unsupported(name) if field in _LISTS else found)
        made = cls(driver, values, capacity, multiple)
        if problem:
            made.problem, made.scalar_problem = problem, scalar_problem
            made.inputs = made.scalar_inputs = None
        return made

    def _is_usual(self) -> bool:
        """Whether the device keeps the API's limits, which the static cost of a selector relies on."""
        values = (value for domain in self.attributes.values() for value in domain.values())
        return len(self.driver) <= 63 and _small(self.attributes) and _small(self.capacity) and all(map(_is_usual_value, values))


def _amount(driver: str, name: str, text: str) -> Any:
    try:
        return Amount.parse(text)
    except ParseError as error:
        raise ParseError(f"capacity {name} of a device of driver {driver}: {text!r}: {error}") from None


def _is_usual_value(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) <= 64 and all(map(_is_usual_value, value))
    if isinstance(value, Version):
        return max(value.major, value.minor, value.patch) <= MAX_INT
    return not isinstance(value, str) or len(value) <= 64


def _small(domains: Mapping[str, Mapping[str, Any]]) -> bool:
    return len(domains) <= 32 and all(
        len(domain) <= 63 and len(values) <= 32 and max(map(len, values), default=0) <= 32 for domain, values in domains.items()
    )


def _by_domain(driver: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A name without domain belongs to the driver's."""
    domains: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    return domains


def _unsupported(name: str) -> str:
    return f"attribute {name}: {_NO_VALUE}"


def _held(fields: Mapping[str, Any]) -> tuple[str, Any]:
    """The field that holds the value of an attribute, and what it holds."""
    return next(((field, raw) for field in _FIELDS if (raw := fields.get(field)) is not None), ("", None))


def _held_by_struct(attribute: AttributeLike) -> tuple[str, Any]:
    return next(((field, raw) for field, slot in _SLOTS if (raw := getattr(attribute, slot)) is not None), ("", None))


def _value(field: str, raw: Any) -> Any:
    if not field:
        raise ParseError(_NO_VALUE)
    if field == "version":
        return _version(raw)
    if field == "versions":
        return tuple(map(_version, raw))
    return tuple(raw) if field in _LISTS else raw


@functools.lru_cache(maxsize=4096)
def _version(text: str) -> Any:
    """Versions repeat from device to device, and share their value."""
    try:
        return Version.parse(text)
    except ParseError as error:
        raise ParseError(f"parse semantic version: {error}") from None
