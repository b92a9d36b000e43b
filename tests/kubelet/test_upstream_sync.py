"""The cases of the upstream helper's TestControllerSyncPool (k8s.io/dynamic-resource-allocation v0.37.2), by their names, on our publisher.

Upstream's caller cuts devices into slices, here that is ours to do: where a case has several slices, each of them holds 64 devices. All pools are
the node's; what differs beyond that is said in the case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from dra_driver.errors import SliceError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.kubelet import slices
from dra_driver.kubelet.publisher import Publisher
from dra_driver.kubelet.slice_features import Pool
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet.publishing import DRIVER, NODE, FastClock, Running, stored

POOL = "pool"
ALL_GATES: frozenset[str] = frozenset()
CHANGED = {"new": DeviceAttribute(string="value")}


def chunk(number: int, attributes: dict[str, DeviceAttribute] | None = None) -> list[Device]:
    """The 64 devices of one slice; the last of them may have attributes."""
    *rest, last = (Device(f"device-{number}-{index:02}") for index in range(64))
    return [*rest, msgspec.structs.replace(last, attributes=attributes or {})]


def there(index: int, offered: Sequence[Device], *, of: int = 1, generation: int = 1, name: str = "") -> ResourceSlice:
    """A slice of ours that the server holds."""
    spec = ResourceSliceSpec(DRIVER, ResourcePool(POOL, of, generation), node_name=NODE, devices=list(offered))
    meta = ObjectMeta(name=name or f"{index:05x}-{DRIVER}-{NODE}-{index}", annotations={slices.annotation(DRIVER): slices.mark(spec)})
    return ResourceSlice(metadata=meta, spec=spec)


@dataclass(frozen=True)
class Case:
    """Given what is there and what is offered: the writes, and in which generation which devices are published by which slices."""

    offered: Pool | None
    there: Sequence[ResourceSlice] = ()
    gates_off: frozenset[str] = ALL_GATES
    created: int = 0
    updated: int = 0
    deleted: int = 0
    generation: int = 1
    published: Sequence[Sequence[Device]] = ()
    lacking: frozenset[str] = field(default_factory=frozenset)
    refused: str = ""
    deviation: str = ""


def pool(*chunks: Sequence[Device], counter_sets: Sequence[CounterSet] = (), skip: Sequence[str] = ()) -> Pool:
    return Pool(tuple(device for one in chunks for device in one), tuple(counter_sets), None, tuple(skip))


PLAIN = [Device("device")]
NEW = [Device("device", CHANGED)]
SINCE = "2026-01-02T03:04:05Z"
TAINTED = [Device("device", taints=[DeviceTaint("example.com/t", "NoExecute", time_added=SINCE)])]
TAINTED_WITHOUT_TIME = [Device("device", taints=[DeviceTaint("example.com/t", "NoExecute")])]
SHARED = [Device("device", allow_multiple_allocations=True)]
WAITING = [Device("device", binding_conditions=["condition1", "condition2"], binding_failure_conditions=["failure1"], binds_to_node=True)]
COUNTERS = [CounterSet("gpu-0", {"mem": Counter("1")})]
CONSUMING = [Device("device", consumes_counters=[DeviceCounterConsumption("gpu-0", {"mem": Counter("1")})])]
GROUPED = [Device("device", consumes_counters=[DeviceCounterConsumption("gpu-0", {"mem": Counter("1")}, ["group1", "group2"])])]
THREE = [there(0, chunk(0), of=3), there(1, chunk(1), of=3), there(2, chunk(2), of=3)]
RANDOM = [there(number, chunk(number), of=3, name=f"random-name{number}") for number in range(3)]

ASKED_FIRST = "asked by a dry run first, and the slice without the field is there already: nothing is written"
LEFT_OUT = "upstream offers the device without the field, as if it were healthy or ready; here it is left out"
TO_THE_CALLER = "told to the caller that offers it, by an exception, instead of an error handler at every sync"
MIGRATION = "only slices that carry our annotation are replaced; others with such names belong to somebody else (test_slices)"

CASES: dict[str, Case] = {
    "create-slice": Case(Pool(), created=1, published=[[]]),
    "create-slice-with-skip-node-operations": Case(pool(skip=["*"]), created=1, published=[[]]),
    "keep-slice-unchanged": Case(pool(PLAIN), [there(0, PLAIN)], published=[PLAIN]),
    "keep-taint-unchanged": Case(pool(TAINTED_WITHOUT_TIME), [there(0, TAINTED)], published=[TAINTED]),
    "add-taints": Case(
        pool(
            [
                Device(
                    "device",
                    taints=[
                        DeviceTaint("example.com/t", "NoExecute"),
                        DeviceTaint("example.com/tainted", "NoSchedule", time_added="2026-02-02T00:00:00Z"),
                        DeviceTaint("example.com/tainted2", "NoExecute", time_added="2026-02-02T00:00:00.1Z"),
                    ],
                )
            ]
        ),
        [there(0, TAINTED)],
        updated=1,
        published=[
            [
                Device(
                    "device",
                    taints=[
                        DeviceTaint("example.com/t", "NoExecute", time_added=SINCE),
                        DeviceTaint("example.com/tainted", "NoSchedule", time_added="2026-02-02T00:00:00Z"),
                        DeviceTaint("example.com/tainted2", "NoExecute", time_added="2026-02-02T00:00:00Z"),
                    ],
                )
            ]
        ],
    ),
    "drop-taints": Case(
        pool(TAINTED_WITHOUT_TIME),
        [there(0, PLAIN)],
        frozenset({"DRADeviceTaints"}),
        updated=1,
        published=[[]],
        lacking=frozenset({"DRADeviceTaints"}),
        deviation=LEFT_OUT,
    ),
    "drop-consumable-capacity-field": Case(
        pool(SHARED),
        [there(0, PLAIN)],
        frozenset({"DRAConsumableCapacity"}),
        published=[PLAIN],
        lacking=frozenset({"DRAConsumableCapacity"}),
        deviation=ASKED_FIRST,
    ),
    "drop-optional-node-operations-field": Case(
        pool(PLAIN, skip=["*"]),
        [there(0, PLAIN)],
        frozenset({"DRAOptionalNodeOperations"}),
        published=[PLAIN],
        lacking=frozenset({"DRAOptionalNodeOperations"}),
        deviation=ASKED_FIRST,
    ),
    "drop-compatibility-groups-field": Case(
        pool(GROUPED, counter_sets=COUNTERS),
        gates_off=frozenset({"DRADeviceCompatibilityGroups"}),
        created=2,
        published=[[], CONSUMING],
        lacking=frozenset({"DRADeviceCompatibilityGroups"}),
    ),
    "remove-pool": Case(None, [there(0, [])], deleted=1),
    "one-existing-and-one-desired-slice-should-be-updated-inplace": Case(pool(PLAIN), [there(0, [])], updated=1, published=[PLAIN]),
    "update-slice-when-more-than-one-existing-or-desired-slice": Case(
        pool(chunk(0), chunk(1)), [there(0, [], of=2), there(1, chunk(1), of=2)], updated=1, published=[chunk(0), chunk(1)]
    ),
    "delete-redundant-slice": Case(pool(PLAIN), [there(0, PLAIN), there(1, PLAIN)], deleted=1, published=[PLAIN]),
    "update-slice": Case(pool(NEW), [there(0, PLAIN)], updated=1, published=[NEW]),
    "update-slice-many-devices": Case(pool(chunk(0, CHANGED)), [there(0, chunk(0))], updated=1, published=[chunk(0, CHANGED)]),
    "multiple-resourceslices-existing-no-changes": Case(pool(chunk(0), chunk(1), chunk(2)), THREE, published=[chunk(0), chunk(1), chunk(2)]),
    "multiple-resourceslices-existing-with-different-resource-pool-generation": Case(
        pool(PLAIN), [there(0, []), there(1, PLAIN, generation=2), there(2, [])], created=1, deleted=3, generation=3, published=[PLAIN]
    ),
    "multiple-resourceslices-existing-one-changed": Case(
        pool(chunk(0), chunk(1, CHANGED), chunk(2)), THREE, updated=1, published=[chunk(0), chunk(1, CHANGED), chunk(2)]
    ),
    "multiple-resourceslices-existing-two-changed": Case(
        pool(chunk(0), chunk(1, CHANGED), chunk(2, CHANGED)),
        THREE,
        updated=3,
        generation=2,
        published=[chunk(0), chunk(1, CHANGED), chunk(2, CHANGED)],
    ),
    "multiple-resourceslices-existing-one-removed": Case(
        pool(chunk(0), chunk(1)), THREE, updated=2, deleted=1, generation=2, published=[chunk(0), chunk(1)]
    ),
    "multiple-resourceslices-existing-one-added": Case(
        pool(chunk(0), chunk(1), chunk(2), chunk(3)),
        THREE,
        created=1,
        updated=3,
        generation=2,
        published=[chunk(0), chunk(1), chunk(2), chunk(3)],
    ),
    "create-partitionable-devices": Case(pool(CONSUMING, counter_sets=COUNTERS), created=2, published=[[], CONSUMING]),
    "drop-partitionable-devices": Case(
        pool(CONSUMING, counter_sets=COUNTERS),
        gates_off=frozenset({"DRAPartitionableDevices"}),
        created=1,
        published=[PLAIN],
        lacking=frozenset({"DRAPartitionableDevices"}),
        deviation="no slice is kept for counters that are not there; of devices that shared them only one that takes all of a set stays",
    ),
    "create-device-with-binding-condition": Case(pool(WAITING), created=1, published=[WAITING]),
    "drop-device-with-binding-condition": Case(
        pool(WAITING),
        gates_off=frozenset({"DRADeviceBindingConditions"}),
        created=1,
        published=[[]],
        lacking=frozenset({"DRADeviceBindingConditions"}),
        deviation=LEFT_OUT,
    ),
    "detect-resource-pools-with-duplicate-counter-sets": Case(
        pool(counter_sets=[*(CounterSet(f"other-{number}", COUNTERS[0].counters) for number in range(7)), *COUNTERS, *COUNTERS]),
        refused='pool pool: found duplicate counter set "gpu-0"',
        deviation=TO_THE_CALLER,
    ),
    "detect-duplicate-devices": Case(
        pool(chunk(0), chunk(0)[:1]), refused='pool pool: found duplicate device "device-0-00"', deviation=TO_THE_CALLER
    ),
    "detect-device-referencing-unknown-counter-set": Case(
        pool(CONSUMING), refused='counter set "gpu-0" referenced by device "device" not found', deviation=TO_THE_CALLER
    ),
    "detect-device-referencing-unknown-counter-in-counter-set": Case(
        pool(CONSUMING, counter_sets=[CounterSet("gpu-0", {"other": Counter("1")})]),
        refused='counter "mem" referenced by device "device" not found in counter set "gpu-0"',
        deviation=TO_THE_CALLER,
    ),
    "migration-from-random-naming-to-index-based-naming": Case(
        pool(chunk(0), chunk(1), chunk(2)),
        RANDOM,
        created=3,
        deleted=3,
        generation=2,
        published=[chunk(0), chunk(1), chunk(2)],
        deviation=MIGRATION,
    ),
    "migration-mixed-naming": Case(
        pool(chunk(0), chunk(1), chunk(2)),
        [RANDOM[0], THREE[1], RANDOM[2]],
        created=2,
        updated=1,
        deleted=2,
        generation=2,
        published=[chunk(0), chunk(1), chunk(2)],
        deviation=MIGRATION,
    ),
}

NOT_A_NODES = (
    "devices that several nodes reach are no node's to publish: a cluster program does that, with a leader, another owner and no kubelet's wipe"
)
DEVIATIONS = {
    "add-one-network-device-all-nodes": NOT_A_NODES,
    "add-one-network-device-some-nodes": NOT_A_NODES,
    "reconcile-with-pool-name-create-slice-no-node-name": NOT_A_NODES,
    "reconcile-with-pool-name-with-node-selector": NOT_A_NODES,
    "reconcile-with-pool-name-with-perdevice-node-selector": NOT_A_NODES,
    "update-node-selector": NOT_A_NODES,
}
"""Cases that are not run."""


def test_the_checklist_has_every_case() -> None:
    assert len(CASES) == 31
    assert len(CASES.keys() | DEVIATIONS.keys()) == 37


@pytest.mark.parametrize("name", CASES)
def test_case(api: ApiServer, client: Client, name: str) -> None:
    case = CASES[name]
    api.store._disabled_gates = case.gates_off
    for one in case.there:
        api.inject("resource.k8s.io/v1", "resourceslices", msgspec.to_builtins(one))
    own = Client(api.connection, "publisher")
    publisher = Publisher(own, driver=DRIVER, node=NODE, clock=FastClock())
    offered: dict[str, Pool] = {} if case.offered is None else {POOL: case.offered}
    if case.refused:
        with pytest.raises(SliceError) as caught:
            publisher.set_pools(offered)
        assert case.refused in str(caught.value)
        own.close()
        assert stored(api) == []
        return
    publisher.set_pools(offered)
    running = Running(api, publisher, own)
    for _ in range(2):  # the second pass finds nothing to do
        running.settle()
        assert dict(publisher.counts.writes) == _given(create=case.created, replace=case.updated, delete=case.deleted)
    running.stop()
    found = stored(api)
    assert [one.spec.devices for one in found] == list(case.published)
    assert all(one.spec.pool == ResourcePool(POOL, len(found), case.generation) for one in found)
    assert publisher.lacking == case.lacking
    owner = client.get(NODES, NODE).metadata.uid
    assert [[one.uid for one in found.metadata.owner_references] for found in found if found.metadata.generate_name] == [[owner]] * case.created


def _given(**counts: int) -> dict[str, int]:
    return {verb: count for verb, count in counts.items() if count}
