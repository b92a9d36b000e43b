"""What only the double does, or what a real server needs a cluster around it for. What both do alike is in tests/k8s/test_api_contract.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dra_driver.errors import ApiDeniedError, ApiError, ApiGoneError, ApiInvalidError, ApiNotFoundError, ApiUnavailableError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, PODS, Node, Pod, PodSpec
from dra_driver.k8s.objects.meta import Kind, ObjectMeta, OwnerReference, TopLevel, always
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.sandbox.apiserver import ApiServer


class Namespace(TopLevel):
    api_version: str = always("v1")
    kind: str = always("Namespace")


class Lease(TopLevel):
    api_version: str = always("coordination.k8s.io/v1")
    kind: str = always("Lease")


NAMESPACES = Kind(Namespace, "v1", "Namespace", "namespaces", namespaced=False)
LEASES = Kind(Lease, "coordination.k8s.io/v1", "Lease", "leases")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def client(api: ApiServer) -> Iterator[Client]:
    found = Client(api.connection, "test")
    yield found
    found.close()


def a_slice(name: str, *devices: Device) -> ResourceSlice:
    spec = ResourceSliceSpec(driver="d.example.com", pool=ResourcePool("p", 1), node_name="n", devices=list(devices))
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def owned_by(owner: TopLevel) -> list[OwnerReference]:
    return [OwnerReference("v1", "Node", owner.metadata.name, owner.metadata.uid)]


def test_two_doubles_with_one_seed_give_the_same_names_and_uids() -> None:
    made = []
    for _ in range(2):
        with ApiServer(seed=7) as api:
            client = Client(api.connection, "test")
            wanted = a_slice("")
            wanted.metadata.generate_name = "x-"
            created = client.create(RESOURCE_SLICES, wanted)
            made.append((created.metadata.name, created.metadata.uid, created.metadata.resource_version))
            client.close()
    assert made[0] == made[1]


def test_the_past_is_gone_after_compaction(api: ApiServer, client: Client) -> None:
    client.create(NODES, Node(metadata=ObjectMeta(name="n")))
    api.compact()
    with pytest.raises(ApiGoneError, match="too old resource version") as caught, client.watch(NODES, "1", timeout=5) as watch:
        list(watch)
    assert (caught.value.status, caught.value.reason) == (410, "Expired")
    with client.watch(NODES, client.list(NODES).resource_version, timeout=0) as watch:
        assert list(watch) == []


def test_compaction_ends_lists_in_pages(api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_driver.k8s.client.PAGE", 1)
    for name in ("a", "b"):
        client.create(NODES, Node(metadata=ObjectMeta(name=name)))
    pages = api.hang("GET", "continue=")
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(client.list(NODES).items)))
    thread.start()
    assert pages.hit.wait(10)
    api.compact()
    pages.release()
    thread.join(10)
    assert found == [2]
    assert len(api.requests("GET")) == 3


def test_a_watch_without_version_starts_with_all_objects(client: Client) -> None:
    client.create(NODES, Node(metadata=ObjectMeta(name="a")))
    with client.watch(NODES, "", timeout=0) as watch:
        assert [(event.type, event.metadata.name) for event in watch] == [("ADDED", "a")]


def test_a_pod_on_a_node_waits_for_its_kubelet(client: Client) -> None:
    client.create(PODS, Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=PodSpec(node_name="n")))
    client.delete(PODS, "p", "default")
    waiting = client.get(PODS, "p", "default")
    assert waiting.metadata.deletion_timestamp
    assert waiting.metadata.deletion_grace_period_seconds == 30
    client.delete(PODS, "p", "default", uid=waiting.metadata.uid, grace_period=0)
    with pytest.raises(ApiNotFoundError):
        client.get(PODS, "p", "default")


def test_a_pod_without_a_node_goes_at_once(client: Client) -> None:
    client.create(PODS, Pod(metadata=ObjectMeta(name="p", namespace="default")))
    assert client.get(PODS, "p", "default").status.phase == "Pending"
    client.delete(PODS, "p", "default")
    with pytest.raises(ApiNotFoundError):
        client.get(PODS, "p", "default")


def test_dependents_go_with_their_last_owner(client: Client) -> None:
    one, two = (client.create(NODES, Node(metadata=ObjectMeta(name=name))) for name in ("n1", "n2"))
    for name, owners in (("of-one", owned_by(one)), ("of-both", [*owned_by(one), *owned_by(two)]), ("of-none", [])):
        dependent = a_slice(name)
        dependent.metadata.owner_references = owners
        client.create(RESOURCE_SLICES, dependent)
    client.delete(NODES, "n1")
    assert [found.metadata.name for found in client.list(RESOURCE_SLICES).items] == ["of-both", "of-none"]
    client.delete(NODES, "n2")
    assert [found.metadata.name for found in client.list(RESOURCE_SLICES).items] == ["of-none"]


def test_the_content_of_a_namespace_goes_with_it(client: Client) -> None:
    client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="team")))
    client.create(RESOURCE_CLAIMS, ResourceClaim(metadata=ObjectMeta(name="c", namespace="team")))
    client.delete(NAMESPACES, "team")
    assert client.list(RESOURCE_CLAIMS).items == []


def test_a_lease_cannot_be_replaced_blindly(client: Client) -> None:
    lease = client.create(LEASES, Lease(metadata=ObjectMeta(name="l", namespace="default")))
    lease.metadata.resource_version = ""
    with pytest.raises(ApiInvalidError, match=r"metadata.resourceVersion: Invalid value: 0: must be specified for an update"):
        client.replace(LEASES, lease)


@pytest.mark.parametrize(
    ("gate", "device", "left"),
    [
        ("DRADeviceTaints", Device("d", taints=[DeviceTaint("a", "NoSchedule")]), Device("d")),
        ("DRAPartitionableDevices", Device("d", consumes_counters=[DeviceCounterConsumption("s", {"c": Counter("1")})]), Device("d")),
        ("DRADeviceBindingConditions", Device("d", binding_conditions=["a"], binding_failure_conditions=["b"]), Device("d")),
        (
            "DRAConsumableCapacity",
            Device("d", allow_multiple_allocations=True, capacity={"m": DeviceCapacity("1Gi")}),
            Device("d", capacity={"m": DeviceCapacity("1Gi")}),
        ),
    ],
)
def test_fields_of_a_disabled_gate_are_dropped_silently(gate: str, device: Device, left: Device) -> None:
    with ApiServer(disabled_gates=frozenset({gate})) as api:
        client = Client(api.connection, "test")
        created = client.create(RESOURCE_SLICES, a_slice("s", device))
        assert created.spec.devices == [left]
        client.close()


def test_list_attributes_are_an_enabled_gate_away(client: Client) -> None:
    device = Device("d", attributes={"numa": DeviceAttribute(ints=[0, 1])})
    with pytest.raises(ApiInvalidError, match="must specify one of"):
        client.create(RESOURCE_SLICES, a_slice("s", device))
    with ApiServer(disabled_gates=frozenset()) as api:
        enabled = Client(api.connection, "test")
        assert enabled.create(RESOURCE_SLICES, a_slice("s", device)).spec.devices[0].attributes["numa"].ints == [0, 1]
        enabled.close()


def test_other_tokens_are_refused(api: ApiServer, client: Client) -> None:
    api.tokens = {"secret"}
    with pytest.raises(ApiDeniedError, match="Unauthorized"):
        client.list(NODES)


def test_a_fault_hits_what_it_names_as_often_as_ordered(api: ApiServer, client: Client) -> None:
    fault = api.fail("GET", r"/nodes/a\b", status=403, times=2, message="no")
    client.create(NODES, Node(metadata=ObjectMeta(name="a")))
    client.list(NODES)
    for _ in range(2):
        with pytest.raises(ApiDeniedError, match="no"):
            client.get(NODES, "a")
    client.get(NODES, "a")
    assert fault.hits == 2


def test_a_lost_answer_comes_after_the_deed(api: ApiServer, client: Client) -> None:
    api.lose_answer("POST")
    with pytest.raises(ApiUnavailableError):
        client.create(NODES, Node(metadata=ObjectMeta(name="a")))
    assert client.get(NODES, "a")


def test_muted_watches_stay_connected_and_new_ones_speak(api: ApiServer, client: Client) -> None:
    version = client.list(NODES).resource_version
    with client.watch(NODES, version, timeout=300, silence=0.3) as muted, client.watch(NODES, version, timeout=300) as spoken:
        assert api.wait_for(lambda: api.open_watches == 2)
        api.mute_watches()
        client.create(NODES, Node(metadata=ObjectMeta(name="a")))
        with client.watch(NODES, version, timeout=300) as fresh:
            assert next(iter(fresh)).metadata.name == "a"
        with pytest.raises(ApiUnavailableError, match="silent"):
            list(muted)
        assert api.open_watches >= 1
        spoken.stop()


def test_a_watch_whose_client_hangs_up_ends(api: ApiServer, client: Client) -> None:
    with client.watch(NODES, "1", timeout=300):
        assert api.wait_for(lambda: api.open_watches == 1)
    assert api.wait_for(lambda: api.open_watches == 0)


@pytest.mark.parametrize("selector", ["a foo b", "=x", "a in b"])
def test_a_broken_label_selector_is_refused(client: Client, selector: str) -> None:
    with pytest.raises(ApiError, match="unable to parse requirement"):
        client.list(NODES, label_selector=selector)


def test_close_leaves_no_connection_behind(client: Client, api: ApiServer) -> None:
    client.list(NODES)
    watch = client.watch(NODES, "1", timeout=300)
    api.hang("GET", "/nodes/x")
    api.close()
    assert api.open_connections == 0
    watch.stop()
    assert list(watch) == []
