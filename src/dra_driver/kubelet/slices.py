"""ResourceSlices of one pool: how devices are cut into slices, and what must be written so that the API server holds them.

Pure functions. A slice's place in its pool is the hexadecimal number that its name begins with, as in the upstream helper since 1.36: the allocator
sorts slices by name, so the order of devices is their order of preference. The generation rises whenever more than one slice of a pool must change,
so that the scheduler sees either the old pool or the new one whole, or knows that it is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dra_driver.errors import SliceError
from dra_driver.k8s.objects.meta import ObjectMeta, OwnerReference
from dra_driver.k8s.objects.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec

DEVICES_PER_SLICE = 64  # the limit with taints or counters; always, so that a taint never changes the number of slices
MAX_ENTRIES = 32  # attributes and capacities of a device
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_INDEX = re.compile(r"([0-9a-f]+)-")


@dataclass(frozen=True)
class Changes:
    """What to do, in this order."""

    delete: tuple[ResourceSlice, ...] = ()
    replace: tuple[ResourceSlice, ...] = ()
    create: tuple[ResourceSlice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.replace or self.create)


def check_devices(devices: Sequence[Device]) -> None:
    """SliceError for mistakes that would keep the whole pool from being published or used: names, their uniqueness, numbers and lengths of values."""
    seen: set[str] = set()
    for index, device in enumerate(devices):
        where = f"devices[{index}]"
        if not _DNS_LABEL.fullmatch(device.name):
            raise SliceError(f"{where}.name: found {device.name!r}, need a DNS label (a-z, 0-9, '-', 63 characters at most)")
        if device.name in seen:
            raise SliceError(f"{where}.name: {device.name!r} is there twice, names must be unique in a pool")
        seen.add(device.name)
        entries = len(device.attributes) + len(device.capacity)
        if entries > MAX_ENTRIES:
            raise SliceError(f"{where} ({device.name}): found {entries} attributes and capacities, {MAX_ENTRIES} are allowed together")
        for name, attribute in device.attributes.items():
            text = attribute.string if attribute.string is not None else attribute.version
            if text is not None and len(text.encode()) > 64:
                raise SliceError(f"{where}.attributes[{name}] ({device.name}): found {len(text.encode())} bytes, 64 are allowed")


def plan(driver: str, node: str, devices: Sequence[Device], existing: Sequence[ResourceSlice]) -> Changes:
    """What turns `existing`, all slices of the driver's pool `node` on that node, into slices of exactly `devices`.

    An empty pool is one empty slice: the driver is up and has nothing.
    """
    wanted = [list(devices[start : start + DEVICES_PER_SLICE]) for start in range(0, len(devices), DEVICES_PER_SLICE)] or [[]]
    digits = _index_digits(len(wanted))
    newest = max((one.spec.pool.generation for one in existing), default=0)
    by_index, obsolete = _match(existing, newest, len(wanted), digits)
    changed = [index for index, one in by_index.items() if _differs(one, wanted[index], len(wanted))]
    missing = [index for index in range(len(wanted)) if index not in by_index]
    generation = newest if not missing and len(changed) <= 1 and newest else newest + 1
    if generation != newest:
        changed = list(by_index)

    def spec(index: int) -> ResourceSliceSpec:
        pool = ResourcePool(name=node, resource_slice_count=len(wanted), generation=generation)
        return ResourceSliceSpec(driver=driver, pool=pool, node_name=node, devices=wanted[index])

    return Changes(
        delete=tuple(obsolete),
        replace=tuple(msgspec.structs.replace(by_index[index], spec=spec(index)) for index in sorted(changed)),
        create=tuple(ResourceSlice(metadata=ObjectMeta(generate_name=f"{index:0{digits}x}-{driver}-{node}-"), spec=spec(index)) for index in missing),
    )


def owned_by_node(one: ResourceSlice, name: str, uid: str) -> ResourceSlice:
    """The slice with the Node as its owner, so that it goes when the Node goes."""
    owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=uid, controller=True)
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, owner_references=[owner]))


def _index_digits(count: int) -> int:
    return max(5, len(f"{count - 1:x}"))


def _match(existing: Sequence[ResourceSlice], newest: int, count: int, digits: int) -> tuple[dict[int, ResourceSlice], list[ResourceSlice]]:
    """Existing slices by their index, and those that have none in the wanted pool."""
    by_index: dict[int, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for one in sorted(existing, key=lambda found: found.metadata.name):
        index = _INDEX.match(one.metadata.name)
        number = int(index[1], 16) if index and len(index[1]) == digits else count
        if one.spec.pool.generation == newest and number < count and number not in by_index:
            by_index[number] = one
        else:
            obsolete.append(one)
    return by_index, obsolete


def _differs(one: ResourceSlice, devices: list[Device], count: int) -> bool:
    return one.spec.pool.resource_slice_count != count or one.spec.devices != devices
