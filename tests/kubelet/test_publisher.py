"""The publisher on the API-server double: whatever happens, the slices say what the node has, and no more is written than that needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dra_driver.errors import SliceError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    RESOURCE_SLICES,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.k8s.reflector import Reflector
from dra_driver.kubelet import publisher as publisher_module
from dra_driver.kubelet import slice_writer, slices
from dra_driver.kubelet.publisher import Publisher
from dra_driver.kubelet.slice_features import Pool
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.apiserver import slices as served_slices
from dra_driver.sandbox.apiserver.server import GATES_OFF_BY_DEFAULT
from tests.kubelet.publishing import DRIVER, NODE, FastClock, Running, Told, asked, devices, names, stored, wait_for, writes

FAILING, WORKING = "slices cannot be published", "slices can be published again"

Start = Callable[..., Running]


@pytest.fixture
def start(api: ApiServer, client: Client) -> Iterator[Start]:
    running: list[Running] = []

    def begin(offered: list[Device] | dict[str, Pool], **options: Any) -> Running:
        own = Client(api.connection, "publisher")
        one = Publisher(own, driver=DRIVER, node=NODE, **({"clock": FastClock()} | options))
        one.set_pools(offered if isinstance(offered, dict) else {NODE: Pool(tuple(offered))})
        running.append(Running(api, one, own))
        return running[-1]

    yield begin
    for one in running:
        one.stop()


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    logger = logging.getLogger("dra_driver.kubelet")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


# What is written --------------------------------------------------------------------------------------------------


def test_pools_come_and_go_by_themselves(start: Start, api: ApiServer) -> None:
    one = start({"a": Pool(tuple(devices(2))), "b": Pool()})
    one.settle()
    assert {(found.spec.pool.name, len(found.spec.devices), found.spec.node_name) for found in stored(api)} == {("a", 2, NODE), ("b", 0, NODE)}
    before = len(api.requests(path="resourceslices"))
    one.publisher.set_pools({"b": Pool(), "c": Pool(tuple(devices(1)))})
    one.settle()
    assert sorted(found.spec.pool.name for found in stored(api)) == ["b", "c"]
    assert sorted(line.split()[0] for line in writes(api, before)) == ["DELETE", "POST"]


def test_a_pool_that_the_api_would_refuse_is_refused_at_once_and_the_former_one_stays(start: Start, api: ApiServer) -> None:
    one = start(devices(2))
    one.settle()
    with pytest.raises(SliceError, match=r'pool node-a: spec\.devices\[0\]\.name: Invalid value: "GPU"'):
        one.publisher.set_devices([Device("GPU")])
    one.settle()
    assert names(api) == ["toy-0", "toy-1"]


def test_counters_are_written_before_the_devices_that_use_them(start: Start, api: ApiServer) -> None:
    sets = tuple(CounterSet(f"set-{number}", {"memory": Counter("80Gi")}) for number in range(9))
    parts = tuple(Device(f"part-{n}", consumes_counters=[DeviceCounterConsumption(f"set-{n % 9}", {"memory": Counter("10Gi")})]) for n in range(65))
    start({NODE: Pool(parts, sets)}).settle()
    found = stored(api)
    assert [(len(one.spec.shared_counters), len(one.spec.devices)) for one in found] == [(8, 0), (1, 0), (0, 64), (0, 1)]
    assert [int(one.metadata.resource_version) for one in found] == sorted(int(one.metadata.resource_version) for one in found)


def test_obsolete_slices_go_first_then_changes_then_new_ones(start: Start, api: ApiServer) -> None:
    one = start(devices(130))
    one.settle()
    obsolete = stored(api)[2]
    old = msgspec.to_builtins(obsolete)
    old["metadata"]["name"], old["spec"]["pool"]["generation"] = "00000-left-behind", 0
    api.inject("resource.k8s.io/v1", "resourceslices", old)
    before = len(api.requests(path="resourceslices"))
    one.publisher.set_devices(devices(200))
    wait_for(api, lambda: len(names(api)) == 200)
    assert [line.split()[0] for line in writes(api, before)][-5:] == ["DELETE", "PUT", "PUT", "PUT", "POST"]


def test_a_delete_names_the_very_object(start: Start, api: ApiServer, told: Told) -> None:
    one = start(devices(100))
    one.settle()
    conflict = api.fail("DELETE", "resourceslices", status=409, reason="Conflict")
    one.publisher.set_devices(devices(10))
    wait_for(api, lambda: len(names(api)) == 10)
    assert conflict.hits == 1
    assert not told.of(FAILING), "another writer was first; the next pass looks again"


# A restart writes nothing -----------------------------------------------------------------------------------------

RICH = [
    Device("big", capacity={"memory": DeviceCapacity("81920Mi")}),
    Device("broken", taints=[DeviceTaint("example.com/broken", "NoSchedule")]),
]


@pytest.mark.parametrize("gates", [frozenset(), frozenset({"DRADeviceTaints"}), GATES_OFF_BY_DEFAULT])
def test_a_restart_writes_nothing_whatever_the_server_made_of_the_slices(start: Start, api: ApiServer, gates: frozenset[str]) -> None:
    api.store._disabled_gates = gates
    rich = [*RICH, *devices(70), Device("list", {"numa": DeviceAttribute(ints=[1])})]
    first = start(rich)
    first.settle()
    first.stop()
    before, versions = len(api.requests(path="resourceslices")), [one.metadata.resource_version for one in stored(api)]
    start(rich).settle()
    assert writes(api, before) == []
    assert [one.metadata.resource_version for one in stored(api)] == versions


def changed_by_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device gets an attribute that nobody sent."""
    prepare = served_slices.prepare

    def also(new: dict[str, Any], *rest: Any) -> None:
        for device in new["spec"].get("devices") or ():
            device.setdefault("attributes", {})["zone"] = {"string": "a"}
        prepare(new, *rest)

    monkeypatch.setattr(served_slices, "prepare", also)


def test_what_a_webhook_adds_is_told_once_and_not_fought(
    start: Start, api: ApiServer, client: Client, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_by_a_webhook(monkeypatch)
    first = start(devices(2))
    first.settle()
    first.settle()
    assert len(told.of("the API server stored a slice otherwise")) == 1
    first.stop()
    before = len(api.requests(path="resourceslices"))
    second = start(devices(2))
    second.settle()
    assert writes(api, before) == []
    assert asked(api) == ["PUT"]
    one = stored(api)[0]
    one.spec.devices[0].attributes["v"] = DeviceAttribute(int_=9)
    client.replace(RESOURCE_SLICES, one)
    wait_for(api, lambda: stored(api)[0].spec.devices[0].attributes["v"].int_ == 0)


# Features that the server lacks -----------------------------------------------------------------------------------

PARTITIONS = Pool(
    (
        Device("gpu-0", consumes_counters=[DeviceCounterConsumption("set", {"memory": Counter("80Gi")})]),
        Device("mig-0", consumes_counters=[DeviceCounterConsumption("set", {"memory": Counter("10Gi")})]),
    ),
    (CounterSet("set", {"memory": Counter("80Gi")}),),
)


def broken(name: str) -> Device:
    return Device(name, taints=[DeviceTaint("example.com/broken", "NoSchedule")])


@pytest.mark.parametrize(
    ("offered", "gate", "expected"),
    [
        (Pool((broken("a"), Device("b"))), "DRADeviceTaints", [Device("b")]),
        (PARTITIONS, "DRAPartitionableDevices", [Device("gpu-0")]),
        (Pool((Device("a", allow_multiple_allocations=True),)), "DRAConsumableCapacity", [Device("a")]),
        (Pool((Device("a", {"x": DeviceAttribute(strings=["y"])}),)), "DRAListTypeAttributes", [Device("a")]),
        (
            Pool((Device("a", binding_conditions=["x"], binding_failure_conditions=["y"]), Device("b"))),
            "DRADeviceBindingConditions",
            [Device("b")],
        ),
        (Pool((Device("a"),), skip_node_operations=("*",)), "DRAOptionalNodeOperations", [Device("a")]),
    ],
)
@pytest.mark.parametrize("dry_runs", [True, False])
def test_without_a_feature_the_simpler_form_is_published_and_remembered(
    start: Start, api: ApiServer, told: Told, offered: Pool, gate: str, expected: list[Device], dry_runs: bool
) -> None:
    api.store._disabled_gates = frozenset({gate})
    if not dry_runs:
        api.fail("*", "dryRun=All", status=400, reason="BadRequest", message="admission webhook does not support dry run", times=None)
    one = start({NODE: offered})
    one.settle()
    assert [device for found in stored(api) for device in found.spec.devices] == expected
    assert one.publisher.lacking == {gate}
    assert one.publisher.counts.dropped == {gate: 1}
    assert one.publisher.counts.left_out == len(offered.devices) - len(expected)
    (line,) = told.of("the API server lacks a feature")
    assert line["feature_gate"] == gate
    if dry_runs:
        assert len(writes(api)) == 1, "nothing was ever offered with a field missing"
    before = len(api.requests(path="resourceslices"))
    one.settle()
    assert writes(api, before) == []
    assert one.publisher.problem == ""


def test_several_lacking_features_are_found_one_after_the_other(start: Start, api: ApiServer) -> None:
    api.store._disabled_gates = frozenset({"DRADeviceTaints", "DRAPartitionableDevices", "DRAListTypeAttributes"})
    listed = Device("list", {"x": DeviceAttribute(ints=[1])})
    one = start({NODE: Pool((*PARTITIONS.devices, broken("b"), listed), PARTITIONS.counter_sets)})
    one.settle()
    assert names(api) == ["gpu-0", "list"]
    assert len(writes(api)) == 1
    assert one.publisher.lacking == {"DRADeviceTaints", "DRAPartitionableDevices", "DRAListTypeAttributes"}


def test_the_full_form_is_tried_again_by_the_next_process_and_after_a_wipe(start: Start, api: ApiServer, client: Client) -> None:
    api.store._disabled_gates = frozenset({"DRADeviceTaints"})
    offered = [broken("a"), Device("b")]
    first = start(offered)
    first.settle()
    assert names(api) == ["b"]
    api.store._disabled_gates = frozenset()
    first.settle()
    assert names(api) == ["b"], "not while it runs"
    client.delete_collection(RESOURCE_SLICES)
    wait_for(api, lambda: names(api) == ["a", "b"])
    assert first.publisher.lacking == frozenset()
    first.stop()
    api.store._disabled_gates = frozenset({"DRADeviceTaints"})
    client.delete_collection(RESOURCE_SLICES)
    second = start(offered)
    second.settle()
    assert names(api) == ["b"]
    second.stop()
    api.store._disabled_gates = frozenset()
    start(offered).settle()
    assert names(api) == ["a", "b"]


def test_a_feature_that_is_lost_at_run_time_is_noticed_in_the_answer(start: Start, api: ApiServer, client: Client) -> None:
    one = start([broken("a"), Device("b")])
    one.settle()
    api.store._disabled_gates = frozenset({"DRADeviceTaints"})
    client.delete_collection(RESOURCE_SLICES)
    wait_for(api, lambda: names(api) == ["b"])
    one.settle()
    assert one.publisher.lacking == {"DRADeviceTaints"}


def test_what_is_stored_already_is_not_asked_about(start: Start, api: ApiServer) -> None:
    first = start([broken("a"), Device("b")])
    first.settle()
    assert asked(api) == ["POST"]
    first.stop()
    second = start([broken("a"), Device("b")])
    second.settle()
    second.publisher.set_devices([broken("a"), broken("b")])
    wait_for(api, lambda: stored(api)[0].spec.devices[1].taints)
    second.publisher.set_devices([Device("a"), broken("b")])
    wait_for(api, lambda: not stored(api)[0].spec.devices[0].taints)
    assert asked(api) == ["POST", "PUT"], "once when another process's slice is first changed"


def test_the_verdict_of_a_policy_takes_no_feature_away(start: Start, api: ApiServer, told: Told) -> None:
    denial = "resourceslices \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: spec.devices[0].taints"
    fault = api.fail("POST", "resourceslices", status=422, reason="Invalid", message=denial, times=None)
    one = start([broken("a")])
    told.wait(FAILING)
    assert one.publisher.lacking == frozenset()
    assert denial in one.publisher.problem
    assert one.publisher.counts.failures == {"refused": 1}
    fault.release()
    one.publisher.set_devices([broken("a"), Device("b")])
    wait_for(api, lambda: names(api) == ["a", "b"])
    told.wait(WORKING)


# Slices of others -------------------------------------------------------------------------------------------------


def foreign(name: str = "00000-toy.example.com-node-a-x7k2p", device: str = "minor-0") -> dict[str, Any]:
    spec = ResourceSliceSpec(DRIVER, ResourcePool(NODE, 1, 3), node_name=NODE, devices=[Device(device)])
    return dict(msgspec.to_builtins(ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)))


def test_nothing_is_published_beside_another_drivers_slices_until_they_are_gone(start: Start, api: ApiServer, client: Client, told: Told) -> None:
    api.inject("resource.k8s.io/v1", "resourceslices", foreign())
    one = start(devices(2))
    (line,) = told.wait(FAILING)
    assert "ResourceSlices of toy.example.com on node node-a belong to another driver: 00000-toy.example.com-node-a-x7k2p;" in line["error"]
    assert one.publisher.foreign == ("00000-toy.example.com-node-a-x7k2p",)
    assert one.publisher.problem == line["error"]
    one.publisher.wake()
    one.publisher.set_devices(devices(3))
    wait_for(api, lambda: one.publisher.counts.passes >= 2)
    assert writes(api) == []
    assert len(told.of(FAILING)) == 1
    client.delete(RESOURCE_SLICES, "00000-toy.example.com-node-a-x7k2p")
    wait_for(api, lambda: names(api) == ["toy-0", "toy-1", "toy-2"])
    told.wait(WORKING)
    assert len(one.publisher.foreign) == 0


def test_a_driver_that_takes_our_slice_over_is_told_and_not_fought(start: Start, api: ApiServer, client: Client, told: Told) -> None:
    one = start(devices(2))
    one.settle()
    (ours,) = stored(api)
    taken = msgspec.structs.replace(ours, spec=msgspec.structs.replace(ours.spec, devices=[Device("minor-0")]))
    before = len(api.requests(path="resourceslices"))
    client.replace(RESOURCE_SLICES, taken)
    told.wait(FAILING)
    assert one.publisher.foreign == (ours.metadata.name,)
    assert [line for line in writes(api, before) if not line.startswith("PUT")] == []
    assert names(api) == ["minor-0"]


def test_slices_of_other_drivers_and_nodes_are_none_of_our_business(start: Start, api: ApiServer) -> None:
    for number, change in enumerate(({"driver": "other.example.com"}, {"nodeName": "node-b"})):
        one = foreign(f"other-{number}")
        one["spec"] |= change
        api.inject("resource.k8s.io/v1", "resourceslices", one)
    start(devices(1)).settle()
    assert len(stored(api)) == 3


def test_slices_of_our_earlier_version_are_taken_over(start: Start, api: ApiServer) -> None:
    one = foreign(device="toy-0")
    one["spec"]["devices"][0]["attributes"] = {"v": {"int": 0}}
    api.inject("resource.k8s.io/v1", "resourceslices", one)
    start(devices(1)).settle()
    (found,) = stored(api)
    assert found.metadata.name == "00000-toy.example.com-node-a-x7k2p"
    assert found.metadata.annotations == {"toy.example.com/written-by": slices.mark(found.spec)}
    assert found.spec.pool.generation == 3


# Who publishes ----------------------------------------------------------------------------------------------------


def test_an_instance_that_does_not_lead_asks_nothing_and_follows_when_it_does(start: Start, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "FOLLOW", 0.05)
    looks = threading.Semaphore(0)
    leading = threading.Event()

    def leads() -> bool:
        looks.release()
        return leading.is_set()

    one = start(devices(1), leads=leads)
    for _ in range(5):
        assert looks.acquire(timeout=10)
    assert api.requests("GET", "resourceslices\\?limit") == [] or not writes(api)
    assert not writes(api)
    assert one.publisher.counts.passes == 0
    leading.set()
    wait_for(api, lambda: names(api) == ["toy-0"])
    assert one.publisher.problem == ""


def test_the_trouble_of_one_that_no_longer_leads_is_anothers(start: Start, api: ApiServer, told: Told) -> None:
    api.inject("resource.k8s.io/v1", "resourceslices", foreign())
    leading = threading.Event()
    leading.set()
    one = start(devices(1), leads=leading.is_set)
    told.wait(FAILING)
    assert one.publisher.problem
    leading.clear()
    one.publisher.wake()
    one._bell.rest()
    assert (one.publisher.problem, one.publisher.foreign) == ("", ())


def test_an_instance_that_is_overtaken_in_a_pass_stops_writing(start: Start, api: ApiServer) -> None:
    answers = iter([True, True, True])  # the beginning, two writes of four
    overtaken = threading.Event()

    def leads() -> bool:
        if next(answers, False):
            return True
        overtaken.set()
        return False

    one = start(devices(200), leads=leads)
    assert overtaken.wait(10)
    one.stop()
    assert len(writes(api)) == 2
    assert one.publisher.problem == ""


# The Node ---------------------------------------------------------------------------------------------------------


def test_without_a_node_object_the_reason_is_told_and_its_arrival_is_enough(start: Start, api: ApiServer, client: Client, told: Told) -> None:
    client.delete(NODES, NODE)
    one = start(devices(1))
    (line,) = told.wait(FAILING)
    assert line["error"].startswith("Node node-a: there is no such object")
    node = client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    wait_for(api, lambda: names(api) == ["toy-0"])
    assert [owner.uid for owner in stored(api)[0].metadata.owner_references] == [node.metadata.uid]
    assert set(one.publisher.counts.failures) == {"no_node"}


# Faults of the API ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "retry_after", "kind"),
    [
        (429, "TooManyRequests", 7, "unavailable"),
        (500, "InternalError", None, "unavailable"),
        (503, "ServiceUnavailable", None, "unavailable"),
        (401, "Unauthorized", None, "denied"),
        (403, "Forbidden", None, "denied"),
        (429, "TooManyRequests", 3600, "unavailable"),
        (410, "Expired", None, "error"),
        (400, "BadRequest", None, "error"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_failing_server_is_asked_again_ever_more_rarely_told_once_and_forgiven(
    start: Start,
    api: ApiServer,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    status: int,
    reason: str,
    retry_after: int | None,
    kind: str,
) -> None:
    monkeypatch.setattr(slice_writer, "CALL_DEADLINE", 0)  # one attempt a call: the client's own repetitions are tested with it
    clock = FastClock()
    path = "resourceslices\\?limit" if method == "GET" else "resourceslices"
    fault = api.fail(method, path, status=status, reason=reason, retry_after=retry_after, times=None)
    one = start(devices(1), clock=clock)
    wait_for(api, lambda: fault.hits >= 12)
    fault.release()
    wait_for(api, lambda: names(api) == ["toy-0"])
    told.wait(WORKING)
    assert len(told.of(FAILING)) == 1
    assert one.publisher.problem == ""
    assert set(one.publisher.counts.failures) == {kind}
    pauses = clock.waits[:11]
    wish = min(retry_after or 0.0, publisher_module.STANDSTILL)
    least = [max(min(0.2 * 2**number, 5.0), wish) for number in range(11)]
    assert all(low <= pause <= max(low * 1.5, wish) for low, pause in zip(least, pauses, strict=True)), pauses
    assert retry_after or len(set(pauses[-4:])) == 4, "they are spread"


def test_the_line_in_the_log_is_the_same_state_however_the_error_text_varies(start: Start, api: ApiServer, told: Told) -> None:
    for number in range(4):
        api.fail("POST", "resourceslices", status=403, message=f"attempt {number}")
    one = start(devices(1))
    told.wait(WORKING)
    assert ["attempt 0" in line["error"] for line in told.of(FAILING)] == [True]
    assert one.publisher.counts.failures == {"denied": 4}
    assert names(api) == ["toy-0"]


def test_a_server_without_the_api_is_told_what_it_lacks(start: Start, api: ApiServer, told: Told) -> None:
    text = "the server could not find the requested resource"
    api.fail("GET", "resourceslices\\?limit", status=404, reason="NotFound", message=text, times=3)
    one = start(devices(1))
    assert told.wait(FAILING)[0]["error"] == f"{text}; resource.k8s.io/v1 needs Kubernetes 1.34 or newer"
    told.wait(WORKING)
    assert set(one.publisher.counts.failures) == {"error"}


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (404, "NotFound")])
def test_a_race_with_another_writer_is_no_failure_unless_it_goes_on(start: Start, api: ApiServer, told: Told, status: int, reason: str) -> None:
    one = start(devices(1))
    one.settle()
    api.fail("PUT", "resourceslices", status=status, reason=reason, times=publisher_module.QUIET_RACES)
    one.publisher.set_devices(devices(1, version=1))
    wait_for(api, lambda: stored(api)[0].spec.devices == devices(1, version=1))
    one.settle()
    assert not told.of(FAILING)
    api.fail("PUT", "resourceslices", status=status, reason=reason, times=publisher_module.QUIET_RACES + 1)
    one.publisher.set_devices(devices(1, version=2))
    told.wait(FAILING)
    wait_for(api, lambda: stored(api)[0].spec.devices == devices(1, version=2))
    told.wait(WORKING)


def test_a_slow_server_is_given_up_and_asked_again(start: Start, api: ApiServer, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_writer, "CALL_DEADLINE", 0.3)
    slow = api.hang("GET", "resourceslices\\?limit", times=None)
    start(devices(1))
    told.wait(FAILING)
    slow.release()
    wait_for(api, lambda: names(api) == ["toy-0"])
    told.wait(WORKING)


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
def test_an_answer_that_is_lost_leads_to_no_second_write(start: Start, api: ApiServer, verb: str) -> None:
    one = start(devices(100))
    one.settle()
    lost = api.lose_answer(verb, "resourceslices")
    one.publisher.set_devices(devices(150, version=1) if verb == "POST" else devices(10, version=1))
    wait_for(api, lambda: lost.hits and len(names(api)) in (10, 150))
    one.settle()
    assert len(stored(api)) == (3 if verb == "POST" else 1)


def deleted(api: ApiServer, client: Client) -> Callable[[], bool]:
    """Deletes all slices; the condition that the one device is back in another slice."""
    before = {one.metadata.uid for one in stored(api)}
    client.delete_collection(RESOURCE_SLICES)
    return lambda: names(api) == ["toy-0"] and not before & {one.metadata.uid for one in stored(api)}


@pytest.mark.parametrize("what", ["cut_watches", "mute_watches", "compact"])
def test_a_watch_that_is_cut_or_falls_silent_hides_no_deletion(
    start: Start, api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(publisher_module, "SILENCE", 0.5)
    start(devices(1)).settle()
    wait_for(api, lambda: api.open_watches == 1)
    getattr(api, what)()
    wait_for(api, deleted(api, client))


def test_a_slice_that_is_deleted_before_the_watch_begins_comes_back(
    start: Start, api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Event()
    follow = Reflector._list

    def late(reflector: Reflector[Any]) -> None:
        begin.wait(20)
        follow(reflector)

    monkeypatch.setattr(Reflector, "_list", late)
    start(devices(1)).settle()
    back = deleted(api, client)
    begin.set()
    wait_for(api, back)


def test_a_slice_that_is_deleted_before_the_watch_has_seen_it_comes_back(start: Start, api: ApiServer, client: Client) -> None:
    away = api.fail("GET", "watch=true", status=503, times=None)
    late = api.hang("POST", "resourceslices")
    one = start(devices(1))
    wait_for(api, lambda: away.hits and late.hits)  # the watch has listed, and found nothing
    late.release()
    wait_for(api, lambda: names(api) == ["toy-0"])
    one.settle()
    back = deleted(api, client)
    api.compact()
    away.release()
    wait_for(api, back)


class JumpingClock(FastClock):
    """Each look at the wall clock shows another day."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def now(self) -> float:
        self._looks += 1
        return super().now() + 86_400.0 * 365 * self._looks * (1 if self._looks % 2 else -1)


def test_a_wall_clock_that_jumps_changes_nothing(start: Start, api: ApiServer, client: Client, told: Told) -> None:
    one = start([broken("a")], clock=JumpingClock())
    one.settle()
    client.delete_collection(RESOURCE_SLICES)
    wait_for(api, lambda: names(api) == ["a"])
    one.settle()
    assert not told.of(FAILING)


def test_a_writer_that_fights_for_our_slices_is_answered_ever_more_rarely(start: Start, api: ApiServer, client: Client) -> None:
    clock = FastClock()
    one = start(devices(1), clock=clock)
    one.settle()
    seen = len(clock.waits)
    for _ in range(8):
        wait_for(api, deleted(api, client))
    one.settle()
    gaps = clock.waits[seen:]
    assert gaps[:3] == sorted(gaps[:3])
    assert max(gaps) > 1.0
    assert max(gaps) <= publisher_module.LONGEST_PAUSE


def test_an_idle_loop_shows_that_it_lives(start: Start, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "TURN", 0.05)
    one = start(devices(1))
    one.settle()
    wait_for(api, lambda: api.open_watches == 1)
    one.settle()  # after whatever rang at the start
    passes = one.publisher.counts.passes
    turns = threading.Semaphore(0)
    monotonic = one.publisher._clock.monotonic

    def counted() -> float:
        turns.release()
        return monotonic()

    monkeypatch.setattr(one.publisher._clock, "monotonic", counted)
    for _ in range(20):
        assert turns.acquire(timeout=10)
    assert one.publisher.counts.passes == passes
    assert one.publisher.counts.writes == {"create": 1}
