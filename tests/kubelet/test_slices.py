"""How devices become slices, and what is written to get there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import SliceError
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import Device, DeviceAttribute, DeviceCapacity, ResourceSlice
from dra_driver.kubelet import slices

DRIVER, NODE = "gpu.example.com", "node-a"


def devices(count: int, *, version: int = 0) -> list[Device]:
    return [Device(name=f"gpu-{number}", attributes={"v": DeviceAttribute(int_=version)}) for number in range(count)]


class Server:
    """Applies changes as the API server would."""

    def __init__(self) -> None:
        self.slices: list[ResourceSlice] = []
        self.writes = 0
        self._names = 0

    def reach(self, wanted: Sequence[Device]) -> slices.Changes:
        changes = slices.plan(DRIVER, NODE, wanted, self.slices)
        gone = {one.metadata.name for one in (*changes.delete, *changes.replace)}
        kept = [one for one in self.slices if one.metadata.name not in gone]
        created = []
        for one in changes.create:
            self._names += 1
            created.append(msgspec.structs.replace(one, metadata=ObjectMeta(name=f"{one.metadata.generate_name}{self._names:05}")))
        self.slices = [*kept, *changes.replace, *created]
        self.writes += len(gone) + len(created)
        return changes

    def published(self) -> list[Device]:
        newest = max(one.spec.pool.generation for one in self.slices)
        current = sorted((one for one in self.slices if one.spec.pool.generation == newest), key=lambda one: one.metadata.name)
        assert len(current) == len(self.slices), "nothing of an older generation is left"
        assert {one.spec.pool.resource_slice_count for one in current} == {len(current)}, "the pool is complete"
        return [device for one in current for device in one.spec.devices]


def test_first_publication_is_generation_one_and_belongs_to_the_node() -> None:
    changes = slices.plan(DRIVER, NODE, devices(8), [])
    (created,) = changes.create
    assert created.metadata.generate_name == "00000-gpu.example.com-node-a-"
    assert created.spec.driver == DRIVER
    assert created.spec.node_name == NODE
    assert (created.spec.pool.name, created.spec.pool.generation, created.spec.pool.resource_slice_count) == (NODE, 1, 1)
    owned = slices.owned_by_node(created, NODE, "uid-1")
    assert [(one.api_version, one.kind, one.name, one.uid, one.controller) for one in owned.metadata.owner_references] == [
        ("v1", "Node", NODE, "uid-1", True)
    ]


def test_what_is_there_already_is_not_written_again() -> None:
    server = Server()
    server.reach(devices(100))
    assert not server.reach(devices(100))


def test_no_device_is_one_empty_slice() -> None:
    server = Server()
    server.reach([])
    assert [one.spec.devices for one in server.slices] == [[]]


@pytest.mark.parametrize(("count", "expected"), [(1, [1]), (64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])])
def test_a_slice_has_at_most_64_devices(count: int, expected: list[int]) -> None:
    server = Server()
    server.reach(devices(count))
    assert [len(one.spec.devices) for one in sorted(server.slices, key=lambda one: one.metadata.name)] == expected


@pytest.mark.parametrize(
    ("before", "after", "generation", "counts"),
    [
        pytest.param(devices(8), devices(8, version=1), 1, (0, 1, 0), id="one slice is edited in place without a new generation"),
        pytest.param(devices(100), devices(70) + devices(100, version=1)[70:], 1, (0, 1, 0), id="one slice of two changes: no new generation"),
        pytest.param(devices(100), devices(100, version=1), 2, (0, 2, 0), id="both slices change: new generation"),
        pytest.param(devices(60), devices(70), 2, (0, 1, 1), id="growing changes the count in all"),
        pytest.param(devices(70), devices(60), 1, (1, 1, 0), id="shrinking to one slice"),
        pytest.param(devices(200), devices(100), 2, (2, 2, 0), id="shrinking to two slices"),
        pytest.param(devices(8), [], 1, (0, 1, 0), id="all devices gone"),
    ],
)
def test_changes_of_a_pool(before: list[Device], after: list[Device], generation: int, counts: tuple[int, int, int]) -> None:
    server = Server()
    server.reach(before)
    changes = server.reach(after)
    assert server.published() == after
    assert {one.spec.pool.generation for one in server.slices} == {generation}
    assert (len(changes.delete), len(changes.replace), len(changes.create)) == counts


def test_a_slice_deleted_by_somebody_else_comes_back_with_a_new_generation_for_all() -> None:
    server = Server()
    server.reach(devices(100))
    server.slices.pop(0)
    changes = server.reach(devices(100))
    assert (len(changes.create), len(changes.replace)) == (1, 1)
    assert server.published() == devices(100)
    assert {one.spec.pool.generation for one in server.slices} == {2}


def test_slices_of_an_older_naming_are_replaced() -> None:
    server = Server()
    server.reach(devices(8))
    old = msgspec.structs.replace(server.slices[0], metadata=ObjectMeta(name="node-a-gpu.example.com-x7k2p"))
    server.slices = [old]
    changes = server.reach(devices(8))
    assert [one.metadata.name for one in changes.delete] == ["node-a-gpu.example.com-x7k2p"]
    assert server.published() == devices(8)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), st.sets(st.integers(0, 5), max_size=3)), min_size=1, max_size=8))
def test_from_any_state_one_pass_reaches_the_wanted_devices_and_a_second_writes_nothing(steps: list[tuple[int, int, set[int]]]) -> None:
    server = Server()
    for count, version, lost in steps:
        server.slices = [one for index, one in enumerate(server.slices) if index not in lost]
        wanted = devices(count, version=version)
        server.reach(wanted)
        assert server.published() == wanted
        assert not server.reach(wanted)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (Device(name="GPU_0"), r"devices\[1\]\.name: found 'GPU_0', need a DNS label"),
        (Device(name="a" * 64), "need a DNS label"),
        (Device(name="gpu-0"), r"devices\[1\]\.name: 'gpu-0' is there twice"),
        (
            Device(name="x", capacity={f"c{number}": DeviceCapacity("1") for number in range(33)}),
            "found 33 attributes and capacities, 32 are allowed",
        ),
        (Device(name="x", attributes={"long": DeviceAttribute(string="x" * 65)}), r"attributes\[long\] \(x\): found 65 bytes, 64 are allowed"),
    ],
)
def test_what_the_api_would_refuse_is_refused_here_and_named(bad: Device, text: str) -> None:
    with pytest.raises(SliceError, match=text):
        slices.check_devices([*devices(1), bad])
