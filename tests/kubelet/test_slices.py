"""How devices become slices, what is written to get there, and which slices are ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.allocation.pools import gather_pools
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
from dra_driver.kubelet import slice_rules, slices
from dra_driver.kubelet.slice_features import Pool

DRIVER, NODE = "gpu.example.com", "node-a"


def plan(wanted: Sequence[Device], existing: Sequence[ResourceSlice] = ()) -> slices.Changes:
    return slices.plan(DRIVER, NODE, NODE, slices.layout(Pool(tuple(wanted))), existing)


def devices(count: int, *, version: int = 0) -> list[Device]:
    return [Device(name=f"gpu-{number}", attributes={"v": DeviceAttribute(int_=version)}) for number in range(count)]


class Server:
    """Applies changes as the API server would."""

    def __init__(self) -> None:
        self.slices: list[ResourceSlice] = []
        self.writes = 0
        self._names = 0

    def reach(self, wanted: Sequence[Device]) -> slices.Changes:
        changes = plan(wanted, self.slices)
        gone = {one.metadata.name for one in (*changes.delete, *changes.replace, *changes.mark)}
        kept = [one for one in self.slices if one.metadata.name not in gone]
        created = []
        for one in changes.create:
            self._names += 1
            name = f"{one.metadata.generate_name}{self._names:05}"
            created.append(msgspec.structs.replace(one, metadata=ObjectMeta(name=name, annotations=one.metadata.annotations)))
        self.slices = [*kept, *changes.replace, *changes.mark, *created]
        self.writes += len(gone) + len(created)
        return changes

    def published(self) -> list[Device]:
        newest = max(one.spec.pool.generation for one in self.slices)
        current = sorted((one for one in self.slices if one.spec.pool.generation == newest), key=lambda one: one.metadata.name)
        assert len(current) == len(self.slices), "nothing of an older generation is left"
        assert {one.spec.pool.resource_slice_count for one in current} == {len(current)}, "the pool is complete"
        return [device for one in current for device in one.spec.devices]


def test_first_publication_is_generation_one_and_belongs_to_the_node() -> None:
    changes = plan(devices(8))
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


@given(st.tuples(st.integers(0, 300), st.integers(0, 1)), st.tuples(st.integers(0, 300), st.integers(0, 1)), st.sets(st.integers(0, 4), max_size=2))
def test_at_every_write_a_scheduler_sees_the_old_pool_or_the_new_one_or_none(before: tuple[int, int], after: tuple[int, int], lost: set[int]) -> None:
    server = Server()
    old, new = devices(before[0], version=before[1]), devices(after[0], version=after[1])
    server.reach(old)
    server.slices = [one for index, one in enumerate(server.slices) if index not in lost]
    changes = plan(new, server.slices)
    there = {one.metadata.name: one for one in server.slices}
    seen = []
    for one in changes.delete:
        del there[one.metadata.name]
        seen.append(offered(there.values()))
    for one in changes.replace:
        there[one.metadata.name] = one
        seen.append(offered(there.values()))
    for one in changes.create:
        name = f"{one.metadata.generate_name}new"
        there[name] = msgspec.structs.replace(one, metadata=ObjectMeta(name=name))
        seen.append(offered(there.values()))
    assert all(found in (None, old, new) for found in seen)
    assert offered(there.values()) == new
    whole = [found is not None for found in seen]
    assert whole == sorted(whole), "once whole it stays whole: it is incomplete only from the first write to the last"


def offered(found: Iterable[ResourceSlice]) -> list[Device] | None:
    """What the allocator may take, None while the pool is incomplete."""
    pools = gather_pools(found, NODE)
    if not pools or pools[0].unusable:
        return None
    return [candidate.device for candidate in pools[0].candidates()]


def counter_set(number: int) -> CounterSet:
    return CounterSet(f"gpu-{number}", {"memory": Counter("80Gi")})


def test_counter_sets_come_first_in_slices_of_their_own_of_eight() -> None:
    consumer = Device("mig-0", consumes_counters=[DeviceCounterConsumption("gpu-0", {"memory": Counter("10Gi")})])
    wanted = slices.layout(Pool((*devices(64), consumer), tuple(counter_set(number) for number in range(9))))
    assert [(len(spec.shared_counters), len(spec.devices)) for spec in wanted] == [(8, 0), (1, 0), (0, 64), (0, 1)]


def test_the_attribute_of_partition_types_is_named_only_where_devices_consume_counters() -> None:
    consumer = Device(
        "mig-0", {"profile": DeviceAttribute(string="1g")}, consumes_counters=[DeviceCounterConsumption("gpu-0", {"memory": Counter("1")})]
    )
    pool = Pool((*devices(64), consumer), (counter_set(0),), f"{DRIVER}/profile", ("*",))
    wanted = slices.layout(pool)
    assert [spec.partition_type_attribute for spec in wanted] == [None, None, f"{DRIVER}/profile"]
    assert [spec.skip_node_operations for spec in wanted] == [["*"]] * 3
    slice_rules.check(NODE, slices.plan(DRIVER, NODE, NODE, wanted, ()).create)


def test_a_pool_of_another_name_is_on_the_same_node() -> None:
    (created,) = slices.plan(DRIVER, NODE, "fabric", slices.layout(Pool()), ()).create
    assert (created.spec.pool.name, created.spec.node_name) == ("fabric", NODE)


@pytest.mark.parametrize(("count", "digits"), [(1, 5), (0x100000, 5), (0x100001, 6), (0x1000001, 7)])
def test_the_index_is_as_long_as_the_largest_needs(count: int, digits: int) -> None:
    assert slices._index_digits(count) == digits


def test_a_name_of_an_object_is_lower_case_though_a_driver_name_need_not_be() -> None:
    (created,) = slices.plan("GPU.example.com", NODE, NODE, slices.layout(Pool()), ()).create
    assert created.metadata.generate_name == "00000-gpu.example.com-node-a-"
    assert created.spec.driver == "GPU.example.com"


@pytest.mark.parametrize(
    ("driver", "node", "expected"),
    [
        ("gpu.nvidia.com", "ip-10-0-12-134.eu-central-1.compute.internal", "00000-gpu.nvidia.com-ip-10-0-12-134.eu-central-1.compute-"),
        ("gpu.nvidia.com", 253 * "n", f"00000-gpu.nvidia.com-{36 * 'n'}-"),
        (63 * "d", "node-a", f"00000-{51 * 'd'}-"),
    ],
)
def test_a_long_name_is_cut_so_that_it_stays_one(driver: str, node: str, expected: str) -> None:
    (created,) = slices.plan(driver, node, node, slices.layout(Pool()), ()).create
    assert created.metadata.generate_name == expected
    slice_rules.check(node, [created])


def test_a_taint_keeps_the_time_since_which_the_server_knows_it() -> None:
    server = Server()
    taint = DeviceTaint("example.com/broken", "NoSchedule")
    server.reach([Device("gpu-0", taints=[taint])])
    stored = msgspec.structs.replace(taint, time_added="2026-01-02T03:04:05Z")
    server.slices[0].spec.devices = [Device("gpu-0", taints=[stored])]
    assert not server.reach([Device("gpu-0", taints=[taint])])
    more = DeviceTaint("example.com/hot", "None", time_added="2026-02-02T00:00:00Z")
    server.reach([Device("gpu-0", taints=[taint, more])])
    assert server.published() == [Device("gpu-0", taints=[stored, more])]
    server.reach([*devices(64), Device("gpu-0", taints=[taint])])
    assert server.published()[64] == Device("gpu-0", taints=[stored]), "also when it moves to another slice"


INDEXED = "00000-gpu.example.com-node-a-x7k2p"


# Whose is it ------------------------------------------------------------------------------------------------------


def stored(name: str, *device_names: str, annotations: dict[str, str] | None = None, pool: str = NODE) -> ResourceSlice:
    spec = ResourceSliceSpec(DRIVER, ResourcePool(pool, 1, 1), node_name=NODE, devices=[Device(one) for one in device_names])
    return ResourceSlice(metadata=ObjectMeta(name=name, annotations=annotations or {}), spec=spec)


def ours(*device_names: str, pool: str = NODE) -> ResourceSlice:
    one = stored("", *device_names, pool=pool)
    return msgspec.structs.replace(one, metadata=ObjectMeta(name=INDEXED, annotations={slices.annotation(DRIVER): slices.mark(one.spec)}))


def taken_over(one: ResourceSlice, *device_names: str) -> ResourceSlice:
    """As the Go helper does it: the object with all its metadata and another content."""
    return msgspec.structs.replace(one, spec=stored("", *device_names).spec)


@pytest.mark.parametrize(
    ("found", "is_ours"),
    [
        pytest.param(ours("gpu-0"), True, id="our annotation"),
        pytest.param(ours("gone-0"), True, id="our annotation, devices that are gone"),
        pytest.param(ours("gpu-0", pool="former"), True, id="our annotation, a pool that is gone"),
        pytest.param(ours(), True, id="our annotation, empty"),
        pytest.param(taken_over(ours("gpu-0"), "gpu-minor-0"), False, id="taken over by another driver with its devices"),
        pytest.param(taken_over(ours("gpu-0", "gpu-1"), "gpu-1"), True, id="written by an older version of ours, or by hand"),
        pytest.param(taken_over(ours("gpu-0")), True, id="emptied by hand"),
        pytest.param(stored(INDEXED, "gpu-0"), True, id="an earlier version of ours"),
        pytest.param(stored(INDEXED, "gone-0", "gpu-1"), True, id="an earlier version of ours, one device gone"),
        pytest.param(stored(INDEXED), True, id="an empty one with an index offers nothing and is nobody's loss"),
        pytest.param(stored(INDEXED, "gpu-minor-0"), False, id="NVIDIA's driver: same name, pool and owner, other devices"),
        pytest.param(stored(INDEXED, "gpu-0", pool="other"), False, id="another pool"),
        pytest.param(stored("node-a-gpu.example.com-x7k2p", "gpu-0"), False, id="no index: a helper before 1.36, which we never used"),
        pytest.param(stored("by-hand", "gpu-0"), False, id="made by a person"),
    ],
)
def test_ours_is_what_carries_our_annotation_or_is_an_earlier_version_of_ours(found: ResourceSlice, is_ours: bool) -> None:
    result = slices.sort_out(DRIVER, [found], {NODE: {"gpu-0", "gpu-1"}})
    assert (list(result.ours.values()), list(result.foreign)) == (([[found]], []) if is_ours else ([], [found]))


def test_a_slice_of_an_earlier_version_gets_the_annotation_and_nothing_else() -> None:
    server = Server()
    server.reach(devices(100))
    for one in server.slices:
        one.metadata.annotations = {"a": "b"}
    changes = server.reach(devices(100))
    assert (len(changes.mark), changes.replace, changes.create, changes.delete) == (2, (), (), ())
    assert all(one.metadata.annotations == {"a": "b", slices.annotation(DRIVER): slices.mark(one.spec)} for one in server.slices)
    assert {one.spec.pool.generation for one in server.slices} == {1}
    assert not server.reach(devices(100))
