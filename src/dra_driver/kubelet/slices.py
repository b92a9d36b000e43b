"""ResourceSlices of one pool: how devices are cut into slices, and what must be written so that the API server holds them.

Pure functions. A slice's place in its pool is the hexadecimal number that its name begins with, as in the upstream helper since 1.36: the allocator
sorts slices by name, so the order of devices is their order of preference. Counter sets come first, in slices of their own. The generation rises
whenever more than one slice of a pool must change, so that the scheduler sees either the old pool or the new one whole, or knows that it is
incomplete.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping, Sequence

import msgspec

from dra_driver.k8s.objects.meta import ObjectMeta, OwnerReference
from dra_driver.k8s.objects.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_driver.kubelet import slice_content
from dra_driver.kubelet.slice_features import Pool
from dra_driver.kubelet.slice_rules import GENERATED_NAME_BASE, MAX_COUNTER_SETS

DEVICES_PER_SLICE = 64  # the limit with taints or counters; always, so that a taint never changes the number of slices

_INDEX = re.compile(r"([0-9a-f]+)-")
_MARK = "dra_driver.kubelet/"


class Changes(msgspec.Struct, frozen=True):
    """What to do, in this order. `mark` are slices of ours that only lack our annotation."""

    delete: tuple[ResourceSlice, ...] = ()
    replace: tuple[ResourceSlice, ...] = ()
    create: tuple[ResourceSlice, ...] = ()
    mark: tuple[ResourceSlice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.replace or self.create or self.mark)


class Sorted(msgspec.Struct, frozen=True):
    """The slices of a driver on a node: ours by pool, and those of somebody else who uses the driver's name."""

    ours: Mapping[str, Sequence[ResourceSlice]]
    foreign: Sequence[ResourceSlice]


# Whose is it ------------------------------------------------------------------------------------------------------


def annotation(driver: str) -> str:
    """The key of the annotation by which a slice is known as ours."""
    return f"{driver.lower()}/written-by"


def mark(spec: ResourceSliceSpec) -> str:
    """The annotation's value. It binds the names of the devices: when another writer takes the object over, annotation and all, it fits no more."""
    names = "\n".join(one.name for one in spec.devices)
    return f"{_MARK}{zlib.crc32(names.encode()):08x}"


def sort_out(driver: str, found: Sequence[ResourceSlice], offered: Mapping[str, Collection[str]]) -> Sorted:
    """Tells our slices from others; `offered` are the names of our devices by pool.

    Ours are those with our annotation, as long as it fits. Another one is taken for one of an earlier version of ours, or for one that somebody
    edited, when its name has an index, its pool is ours and it holds a device that we know, or nothing at all: other implementations under the
    driver's name call their devices otherwise (docs/decisions/0009).
    """
    ours: dict[str, list[ResourceSlice]] = {}
    foreign: list[ResourceSlice] = []
    for one in found:
        pool = one.spec.pool.name
        if _is_marked(driver, one) or (_index(one) is not None and pool in offered and _is_known(one, offered[pool])):
            ours.setdefault(pool, []).append(one)
        else:
            foreign.append(one)
    return Sorted(ours, foreign)


def _is_marked(driver: str, one: ResourceSlice) -> bool:
    return one.metadata.annotations.get(annotation(driver)) == mark(one.spec)


def _is_known(one: ResourceSlice, names: Collection[str]) -> bool:
    return any(device.name in names for device in one.spec.devices) or not (one.spec.devices or one.spec.shared_counters)


# What is wanted ---------------------------------------------------------------------------------------------------


def layout(pool: Pool) -> list[ResourceSliceSpec]:
    """The content of each slice, in order, without driver, node and place in the pool. An empty pool is one empty slice: the driver is up."""
    sets, devices = list(pool.counter_sets), list(pool.devices)
    empty = ResourceSliceSpec(driver="", pool=ResourcePool(name="", resource_slice_count=0), skip_node_operations=list(pool.skip_node_operations))
    counters = [msgspec.structs.replace(empty, shared_counters=sets[at : at + MAX_COUNTER_SETS]) for at in range(0, len(sets), MAX_COUNTER_SETS)]
    chunks = [devices[at : at + DEVICES_PER_SLICE] for at in range(0, len(devices), DEVICES_PER_SLICE)]
    offered = [msgspec.structs.replace(empty, devices=one, partition_type_attribute=_partition_type(pool, one)) for one in chunks]
    return [*counters, *offered] or [empty]


def plan(driver: str, node: str, name: str, wanted: Sequence[ResourceSliceSpec], existing: Sequence[ResourceSlice]) -> Changes:
    """What turns `existing`, all our slices of the pool `name` on that node, into slices of exactly the contents `wanted`: those of a `layout`."""
    digits = _index_digits(len(wanted))
    newest = max((one.spec.pool.generation for one in existing), default=0)
    by_index, obsolete = _match(existing, newest, len(wanted), digits)
    changed = [index for index, one in by_index.items() if not _stands_for(one, wanted[index], len(wanted))]
    missing = [index for index in range(len(wanted)) if index not in by_index]
    generation = newest if not missing and len(changed) <= 1 and newest else newest + 1
    if generation != newest:
        changed = list(by_index)

    known = [device for one in existing for device in one.spec.devices]

    def spec(index: int) -> ResourceSliceSpec:
        pool = ResourcePool(name=name, resource_slice_count=len(wanted), generation=generation)
        devices = slice_content.with_times_of(known, wanted[index].devices)
        return msgspec.structs.replace(wanted[index], driver=driver, pool=pool, node_name=node, devices=devices)

    def created(index: int) -> ResourceSlice:
        return _marked(ResourceSlice(metadata=ObjectMeta(generate_name=_generate_name(f"{index:0{digits}x}-{driver}-{node}-")), spec=spec(index)))

    return Changes(
        delete=tuple(obsolete),
        replace=tuple(_marked(msgspec.structs.replace(by_index[index], spec=spec(index))) for index in sorted(changed)),
        create=tuple(created(index) for index in missing),
        mark=tuple(_marked(one) for index, one in sorted(by_index.items()) if index not in changed and not _is_marked(driver, one)),
    )


def owned_by_node(one: ResourceSlice, name: str, uid: str) -> ResourceSlice:
    """The slice with the Node as its owner, so that it goes when the Node goes."""
    owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=uid, controller=True)
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, owner_references=[owner]))


def _marked(one: ResourceSlice) -> ResourceSlice:
    annotations = one.metadata.annotations | {annotation(one.spec.driver): mark(one.spec)}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=annotations))


def _partition_type(pool: Pool, devices: Sequence[Device]) -> str | None:
    return pool.partition_type_attribute if any(one.consumes_counters for one in devices) else None


def _generate_name(text: str) -> str:
    """Cut where the API server would cut it, but so that what is left is still the beginning of a name."""
    text = text.lower()
    return text if len(text) <= GENERATED_NAME_BASE else f"{text[: GENERATED_NAME_BASE - 1].rstrip('-.')}-"


def _index_digits(count: int) -> int:
    return max(5, len(f"{count - 1:x}"))


def _index(one: ResourceSlice) -> str | None:
    """The digits of its index."""
    found = _INDEX.match(one.metadata.name)
    return found[1] if found and len(found[1]) >= _index_digits(1) else None


def _match(existing: Sequence[ResourceSlice], newest: int, count: int, digits: int) -> tuple[dict[int, ResourceSlice], list[ResourceSlice]]:
    """Existing slices by their index, and those that have none in the wanted pool."""
    by_index: dict[int, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for one in sorted(existing, key=lambda found: found.metadata.name):
        index = _index(one)
        number = int(index, 16) if index and len(index) == digits else count
        if one.spec.pool.generation == newest and number < count and number not in by_index:
            by_index[number] = one
        else:
            obsolete.append(one)
    return by_index, obsolete


def _stands_for(one: ResourceSlice, wanted: ResourceSliceSpec, count: int) -> bool:
    return one.spec.pool.resource_slice_count == count and slice_content.same(one.spec, wanted)
