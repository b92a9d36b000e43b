"""A device as a selector sees it: the variable `device`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dra_driver.errors import ParseError
from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

Scalar: TypeAlias = bool | int | str | Semver
AttributeValue: TypeAlias = Scalar | list[Scalar]


def _same(value: Any) -> AttributeValue:
    result: AttributeValue = value
    return result


def _versions(texts: list[str]) -> AttributeValue:
    return [Semver.parse(text) for text in texts]


_READ: dict[str, Callable[[Any], AttributeValue]] = {
    "int": _same,
    "bool": _same,
    "string": _same,
    "version": Semver.parse,
    "ints": _same,
    "bools": _same,
    "strings": _same,
    "versions": _versions,
}


@dataclass(frozen=True, slots=True)
class Device:
    """Attributes and capacities by domain and name: the API's `gpu.nvidia.com/type` is `attributes["gpu.nvidia.com"]["type"]`.

    `fault` is why every expression fails on this device, as in the scheduler: an attribute has no value, or a version that is none.
    """

    driver: str
    attributes: Mapping[str, Mapping[str, AttributeValue]] = field(default_factory=dict)
    capacity: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    fault: str = ""

    @classmethod
    def from_api(cls, driver: str, device: Mapping[str, Any]) -> Device:
        """Reads `attributes`, `capacity` and `allowMultipleAllocations` of an entry of ResourceSlice `spec.devices`.

        A name without a domain belongs to the driver's. Raises ParseError for a capacity that is no Quantity: the API server stores none.
        """
        attributes: dict[str, dict[str, AttributeValue]] = {}
        fault = ""
        for full_name, typed in (device.get("attributes") or {}).items():
            domain, name = _split(full_name, driver)
            kind = next((kind for kind in _READ if typed.get(kind) is not None), None)
            if kind is None:
                fault = fault or f"attribute {full_name}: unsupported attribute value"
                continue
            try:
                attributes.setdefault(domain, {})[name] = _READ[kind](typed[kind])
            except ParseError as error:
                fault = fault or f"attribute {full_name}: parse semantic version: {error}"
        capacity: dict[str, dict[str, Quantity]] = {}
        for full_name, entry in (device.get("capacity") or {}).items():
            domain, name = _split(full_name, driver)
            try:
                capacity.setdefault(domain, {})[name] = Quantity.parse(entry["value"])
            except ParseError as error:
                raise ParseError(f"capacity {full_name} of a device of driver {driver}: {entry['value']!r}: {error}") from error
        return cls(driver, attributes, capacity, bool(device.get("allowMultipleAllocations")), fault)


def _split(full_name: str, driver: str) -> tuple[str, str]:
    """Domain and name, at the first slash."""
    domain, slash, name = full_name.partition("/")
    return (domain, name) if slash else (driver, full_name)
