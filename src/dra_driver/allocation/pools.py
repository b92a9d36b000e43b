"""Which devices a node can reach: ResourceSlices gathered into pools, as the scheduler's allocator does it (KEP-4381).

A driver publishes a pool as one or more slices that carry the same generation. Only a complete newest generation counts, so a reader never
sees half of an update.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from dra_driver import cel
from dra_driver.k8s.objects.resource import Device, ResourceSlice


class DeviceId(NamedTuple):
    """What identifies a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A device that the node can reach, and the slice that offers it. `index` is its place in the slice."""

    slice: ResourceSlice
    index: int

    @property
    def device(self) -> Device:
        """The API's device."""
        return self.slice.spec.devices[self.index]

    @cached_property
    def id(self) -> DeviceId:
        """Driver, pool and name."""
        return DeviceId(self.slice.spec.driver, self.slice.spec.pool.name, self.device.name)

    @cached_property
    def view(self) -> cel.Device:
        """What selectors see of it."""
        return cel.Device.from_api(self.slice.spec.driver, msgspec.to_builtins(self.device))


@dataclass(frozen=True)
class Pool:
    """The slices of one pool that target the node, sorted by name. `unusable` says why none of its devices may be allocated."""

    driver: str
    name: str
    slices: Sequence[ResourceSlice] = ()
    unusable: str = ""

    def candidates(self) -> Iterator[Candidate]:
        """The devices, in the order in which the allocator tries them."""
        if not self.unusable:
            yield from (Candidate(slice_, index) for slice_ in self.slices for index in range(len(slice_.spec.devices)))

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def gather_pools(slices: Iterable[ResourceSlice], node: str) -> list[Pool]:
    """All pools with a slice for the node, by driver and name; a pool that is being replaced by one without such a slice is left out.

    Slices that select nodes by labels or device by device are not supported yet: their pools are unusable.
    """
    by_pool: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for slice_ in slices:
        by_pool[slice_.spec.driver, slice_.spec.pool.name].append(slice_)
    pools = (_pool(driver, name, members, node) for (driver, name), members in sorted(by_pool.items()))
    return [pool for pool in pools if pool is not None]


def _pool(driver: str, name: str, members: list[ResourceSlice], node: str) -> Pool | None:
    targeting = [slice_ for slice_ in members if _targets(slice_, node)]
    if not targeting:
        return None
    newest = max(slice_.spec.pool.generation for slice_ in targeting)
    usable = sorted((slice_ for slice_ in targeting if slice_.spec.pool.generation == newest), key=lambda slice_: slice_.metadata.name)
    expected = usable[0].spec.pool.resource_slice_count
    if len(usable) != expected:
        if any(slice_.spec.pool.generation > newest for slice_ in members):
            return None
        existing = sum(slice_.spec.pool.generation == newest for slice_ in members)
        if existing != expected:
            return Pool(driver, name, unusable=f"incomplete: {existing} of {expected} slices of generation {newest} exist")
    return Pool(driver, name, usable, _flaw(usable))


def _targets(slice_: ResourceSlice, node: str) -> bool:
    """Whether the node can, or may, reach the slice's devices."""
    spec = slice_.spec
    return spec.node_name == node if spec.node_name else bool(spec.all_nodes) or _selects_by_labels(slice_)


def _selects_by_labels(slice_: ResourceSlice) -> bool:
    return slice_.spec.node_selector is not None or bool(slice_.spec.per_device_node_selection)


def _flaw(slices: list[ResourceSlice]) -> str:
    if any(_selects_by_labels(slice_) for slice_ in slices):
        return "its slices select nodes by labels, which is not supported yet"
    names = Counter(device.name for slice_ in slices for device in slice_.spec.devices)
    twice = [name for name, count in names.items() if count > 1]
    return f"invalid: duplicate device name {twice[0]}" if twice else ""
