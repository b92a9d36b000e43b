"""Many selectors over many devices: each selector is evaluated once per distinct combination of what it reads.

Selectors with the same reads share one grouping of the devices. A group remembers the results of its selectors, so a changed device costs the
forming of its keys and evaluations only where its values were never seen. One device takes about a kilobyte on top of itself per ten groupings.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from dra_driver.cel.device import Device
from dra_driver.cel.evaluation.values import Version
from dra_driver.cel.reads import ATTRIBUTES, CAPACITY, Read
from dra_driver.cel.selector import Selector
from dra_driver.errors import EvaluationError
from dra_driver.k8s.quantity import Quantity

DeviceKey = TypeVar("DeviceKey", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)
Result = bool | EvaluationError
_Looks = tuple[frozenset[Read], bool]


class _Group(Generic[DeviceKey]):
    """Devices that are alike to some selectors; the first one stands for all."""

    __slots__ = ("members", "named", "representative", "results")

    def __init__(self, representative: Device) -> None:
        self.members: dict[DeviceKey, None] = {}
        self.representative = representative
        self.results: dict[Selector, Result] = {}
        self.named: dict[Any, Result] | None = None

    def all_results(self, selectors: Mapping[Any, Selector]) -> dict[Any, Result]:
        if self.named is None:
            self.named = {name: self.result(selector) for name, selector in selectors.items()}
        return self.named

    def result(self, selector: Selector) -> Result:
        found = self.results.get(selector)
        if found is None:
            try:
                found = selector.matches(self.representative)
            except EvaluationError as error:
                found = error
            self.results[selector] = found
        return found


class _Grouping(Generic[DeviceKey]):
    """All devices, by the values of what some selectors read."""

    __slots__ = ("groups", "problem", "reads", "selectors")

    def __init__(self, selector: Selector) -> None:
        self.selectors: dict[Any, Selector] = {}
        self.problem = selector.problem
        self.reads = sorted(selector.reads, key=lambda read: (read.map, read.domain or "", read.name or ""))
        self.groups: dict[Any, _Group[DeviceKey]] = {}

    def place(self, key: DeviceKey, device: Device) -> Any:
        """Puts a device into its group; returns what identifies the group."""
        values = self.problem(device) or tuple([_read(device, read) for read in self.reads])
        group = self.groups.get(values)
        if group is None:
            group = self.groups[values] = _Group(device)
        group.members[key] = None
        return values

    def take(self, key: DeviceKey, values: Any) -> None:
        group = self.groups[values]
        del group.members[key]
        if not group.members:
            del self.groups[values]


class Failure(NamedTuple):
    """Why a selector fails on devices; the scheduler stops scheduling a pod then."""

    error: EvaluationError
    devices: int


class Index(Generic[Name, DeviceKey]):
    """Devices and selectors by name. Not safe for threads: one owner feeds it."""

    def __init__(self, selectors: Mapping[Name, Selector]) -> None:
        self._selectors = dict(selectors)
        self._groupings: dict[_Looks, _Grouping[DeviceKey]] = {}
        for name, selector in self._selectors.items():
            self._groupings.setdefault(_looks(selector), _Grouping(selector)).selectors[name] = selector
        self._positions = {looks: position for position, looks in enumerate(self._groupings)}
        self._places: dict[DeviceKey, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        """The number of devices."""
        return len(self._places)

    def put(self, key: DeviceKey, device: Device) -> None:
        """Adds or replaces a device."""
        before = self._places.get(key)
        now = self._places[key] = tuple([grouping.place(key, device) for grouping in self._groupings.values()])
        if before is not None:
            for grouping, old, new in zip(self._groupings.values(), before, now, strict=True):
                if old != new:
                    grouping.take(key, old)

    def drop(self, key: DeviceKey) -> None:
        """Removes a device, if it is there."""
        places = self._places.pop(key, None)
        if places is not None:
            for grouping, values in zip(self._groupings.values(), places, strict=True):
                grouping.take(key, values)

    def result(self, name: Name, key: DeviceKey) -> Result:
        """What a selector says about one device. Raises KeyError for an unknown one."""
        selector = self._selectors[name]
        values = self._places[key][self._positions[_looks(selector)]]
        return self._groupings[_looks(selector)].groups[values].result(selector)

    def results(self, key: DeviceKey) -> dict[Name, Result]:
        """What all selectors say about one device. Raises KeyError for an unknown one."""
        found: dict[Name, Result] = {}
        for grouping, values in zip(self._groupings.values(), self._places[key], strict=True):
            found.update(grouping.groups[values].all_results(grouping.selectors))
        return found

    def matching(self, name: Name) -> Iterator[DeviceKey]:
        """The devices that a selector selects."""
        selector = self._selectors[name]
        for group in self._groupings[_looks(selector)].groups.values():
            if group.result(selector) is True:
                yield from group.members

    def count(self, name: Name) -> int:
        """How many devices a selector selects."""
        selector = self._selectors[name]
        groups = self._groupings[_looks(selector)].groups.values()
        return sum(len(group.members) for group in groups if group.result(selector) is True)

    def failures(self, name: Name) -> dict[str, Failure]:
        """The errors of a selector by text, and on how many devices each occurs."""
        selector = self._selectors[name]
        found: dict[str, Failure] = {}
        for group in self._groupings[_looks(selector)].groups.values():
            result = group.result(selector)
            if isinstance(result, EvaluationError):
                before = found.get(str(result))
                found[str(result)] = Failure(result, len(group.members) + (before.devices if before else 0))
        return found


def _looks(selector: Selector) -> _Looks:
    """What selectors must have in common to see devices alike."""
    return selector.reads, selector.takes_lists


def _read(device: Device, read: Read) -> Any:
    """What distinguishes the values of a read."""
    if read.map == "driver":
        return device.driver
    if read.map == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    if read.map not in (ATTRIBUTES, CAPACITY):
        return device.driver, device.allow_multiple_allocations, _map_key(device.attributes), _map_key(device.capacity)
    domains = device.attributes if read.map == ATTRIBUTES else device.capacity
    if read.domain is None:
        return _map_key(domains)
    values = domains.get(read.domain)
    if values is None:
        return None
    return tuple((name, _key(value)) for name, value in values.items()) if read.name is None else _key(values.get(read.name))


def _map_key(domains: Mapping[str, Mapping[str, Any]]) -> Any:
    return tuple((domain, tuple((name, _key(value)) for name, value in values.items())) for domain, values in domains.items())


def _key(value: Any) -> Any:
    """A value as a key: equal keys behave alike in every expression."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is tuple:
        return tuple(map(_key, value))
    if isinstance(value, Version):
        return Version, str(value)
    if isinstance(value, Quantity):
        return value.identity
    return kind, value
