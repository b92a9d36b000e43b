"""What the double and a real API server do alike, seen through our client.

The double is always tested. A real server is when DRA_CONTRACT_KUBECONFIG names a kubeconfig; the tests use a driver name of their own, namespace
`default`, and clean up.
"""

from __future__ import annotations

import threading
import uuid
from itertools import islice

import pytest

from dra_driver.errors import ApiConflictError, ApiError, ApiInvalidError, ApiNotFoundError
from dra_driver.k8s import client as client_module
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    AllocationResult,
    DeviceAllocationResult,
    DeviceCapacity,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaint,
    ExactDeviceRequest,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from tests.k8s.contract import Server


def test_create_fills_the_metadata_and_get_returns_the_same(server: Server) -> None:
    created = server.client.create(RESOURCE_SLICES, server.slice("one"))
    metadata = created.metadata
    assert metadata.generation == 1
    assert len(metadata.uid) == 36
    assert int(metadata.resource_version) > 0
    assert metadata.creation_timestamp
    assert metadata.creation_timestamp.endswith("Z")
    assert server.client.get(RESOURCE_SLICES, metadata.name) == created


def test_a_generated_name_keeps_58_characters_and_adds_5(server: Server) -> None:
    wanted = server.slice()
    wanted.metadata.generate_name = "0-" + 70 * "x"
    names = {server.client.create(RESOURCE_SLICES, wanted).metadata.name for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert name.startswith(wanted.metadata.generate_name[:58])
        assert len(name) == 63


def test_quantities_and_taint_times_are_filled_in_by_the_server(server: Server) -> None:
    wanted = server.slice("one")
    wanted.spec.devices[0].capacity = {"memory": DeviceCapacity("81920Mi")}
    wanted.spec.devices[0].taints = [DeviceTaint("example.com/broken", "NoSchedule")]
    device = server.client.create(RESOURCE_SLICES, wanted).spec.devices[0]
    assert device.capacity["memory"].value == "80Gi"
    assert device.taints[0].time_added


def test_a_name_is_taken_once(server: Server) -> None:
    server.client.create(RESOURCE_SLICES, server.slice("one"))
    with pytest.raises(ApiConflictError, match=r'resourceslices.resource.k8s.io "one.*" already exists') as caught:
        server.client.create(RESOURCE_SLICES, server.slice("one"))
    assert caught.value.reason == "AlreadyExists"
    assert caught.value.status == 409


def test_a_missing_object_is_404_with_its_name(server: Server) -> None:
    with pytest.raises(ApiNotFoundError, match=r'resourceclaims.resource.k8s.io "missing" not found'):
        server.client.get(RESOURCE_CLAIMS, "missing", "default")
    with pytest.raises(ApiNotFoundError):
        server.client.delete(RESOURCE_SLICES, "missing")
    with pytest.raises(ApiNotFoundError):
        server.client.replace(RESOURCE_SLICES, server.slice("missing"))


def test_a_missing_namespace_is_404(server: Server) -> None:
    claim = server.claim("one")
    claim.metadata.namespace = "no-such-namespace"
    with pytest.raises(ApiNotFoundError, match='namespaces "no-such-namespace" not found'):
        server.client.create(RESOURCE_CLAIMS, claim)


def test_replace_counts_generations_only_when_the_spec_changes(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    one.metadata.labels = {"a": "b"}
    labelled = server.client.replace(RESOURCE_SLICES, one)
    assert labelled.metadata.generation == 1
    assert int(labelled.metadata.resource_version) > int(one.metadata.resource_version)
    labelled.spec.pool.generation = 7
    assert server.client.replace(RESOURCE_SLICES, labelled).metadata.generation == 2


def test_replace_with_the_same_content_keeps_the_resource_version(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    assert server.client.replace(RESOURCE_SLICES, one).metadata.resource_version == one.metadata.resource_version


def test_a_stale_replace_conflicts_and_one_without_version_wins(server: Server) -> None:
    stale = server.client.create(RESOURCE_SLICES, server.slice("one"))
    fresh = server.client.get(RESOURCE_SLICES, stale.metadata.name)
    fresh.spec.pool.generation = 1
    server.client.replace(RESOURCE_SLICES, fresh)
    with pytest.raises(ApiConflictError, match="the object has been modified; please apply your changes to the latest version") as caught:
        server.client.replace(RESOURCE_SLICES, stale)
    assert caught.value.reason == "Conflict"
    stale.metadata.resource_version = ""
    assert server.client.replace(RESOURCE_SLICES, stale).metadata.generation == 3


def test_replace_refuses_another_uid(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    one.metadata.uid = str(uuid.uuid4())
    one.metadata.resource_version = ""
    with pytest.raises(ApiConflictError, match="UID in precondition"):
        server.client.replace(RESOURCE_SLICES, one)


def test_delete_holds_its_preconditions(server: Server) -> None:
    metadata = server.client.create(RESOURCE_SLICES, server.slice("one")).metadata
    with pytest.raises(ApiConflictError, match="the UID in the precondition"):
        server.client.delete(RESOURCE_SLICES, metadata.name, uid=str(uuid.uuid4()))
    with pytest.raises(ApiConflictError, match="the ResourceVersion in the precondition"):
        server.client.delete(RESOURCE_SLICES, metadata.name, uid=metadata.uid, resource_version="1")
    server.client.delete(RESOURCE_SLICES, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version)
    with pytest.raises(ApiNotFoundError):
        server.client.get(RESOURCE_SLICES, metadata.name)


def test_delete_collection_takes_what_the_selector_takes(server: Server) -> None:
    other = f"other.{server.driver}"
    server.client.create(RESOURCE_SLICES, server.slice("one"))
    kept = server.slice("two")
    kept.spec.node_name = other
    server.client.create(RESOURCE_SLICES, kept)
    server.client.delete_collection(RESOURCE_SLICES, field_selector=f"spec.nodeName=node.{server.driver},{server.mine}")
    assert [found.spec.node_name for found in server.client.list(RESOURCE_SLICES, field_selector=server.mine).items] == [other]


def test_a_finalizer_delays_the_end(server: Server) -> None:
    claim = server.claim("one")
    claim.metadata.finalizers = ["example.com/wait"]
    server.client.create(RESOURCE_CLAIMS, claim)
    server.client.delete(RESOURCE_CLAIMS, claim.metadata.name, "default")
    waiting = server.client.get(RESOURCE_CLAIMS, claim.metadata.name, "default")
    assert waiting.metadata.deletion_timestamp
    waiting.metadata.finalizers = []
    server.client.replace(RESOURCE_CLAIMS, waiting)
    with pytest.raises(ApiNotFoundError):
        server.client.get(RESOURCE_CLAIMS, claim.metadata.name, "default")


def test_lists_come_in_pages_and_sorted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE", 2)
    for name in ("b", "a", "e", "d", "c"):
        server.client.create(RESOURCE_SLICES, server.slice(name))
    listing = server.client.list(RESOURCE_SLICES, field_selector=server.mine)
    assert [found.metadata.name[0] for found in listing.items] == ["a", "b", "c", "d", "e"]
    assert int(listing.resource_version) >= max(int(found.metadata.resource_version) for found in listing.items)


def test_field_and_label_selectors(server: Server) -> None:
    one = server.slice("one", pool="a")
    one.metadata.labels = {"tier": "x"}
    server.client.create(RESOURCE_SLICES, one)
    server.client.create(RESOURCE_SLICES, server.slice("two", pool="b"))

    def names(field_selector: str = "", label_selector: str = "") -> list[str]:
        fields = f"{server.mine},{field_selector}" if field_selector else server.mine
        return [found.metadata.name[:3] for found in server.client.list(RESOURCE_SLICES, field_selector=fields, label_selector=label_selector).items]

    assert names() == ["one", "two"]
    assert names(f"metadata.name=two.{server.driver}") == ["two"]
    assert names("spec.pool.name=a") == ["one"]
    assert names("spec.pool.name!=a") == ["two"]
    assert names("spec.nodeName=elsewhere") == []
    assert names(label_selector="tier=x") == ["one"]
    assert names(label_selector="tier in (x,y)") == ["one"]
    assert names(label_selector="tier notin (x)") == ["two"]
    assert names(label_selector="!tier") == ["two"]


def test_an_unknown_field_selector_is_refused(server: Server) -> None:
    with pytest.raises(ApiError, match=r"spec.nope") as caught:
        server.client.list(RESOURCE_SLICES, field_selector="spec.nope=x")
    assert caught.value.status == 400


def test_a_watch_goes_on_from_a_list(server: Server) -> None:
    first = server.client.create(RESOURCE_SLICES, server.slice("first"))
    version = server.client.list(RESOURCE_SLICES, field_selector=server.mine).resource_version
    second = server.client.create(RESOURCE_SLICES, server.slice("second"))
    second.spec.pool.generation = 1
    second = server.client.replace(RESOURCE_SLICES, second)
    server.client.delete(RESOURCE_SLICES, first.metadata.name)
    with server.client.watch(RESOURCE_SLICES, version, field_selector=server.mine, timeout=60) as watch:
        events = list(islice(watch, 3))
    assert [(event.type, event.metadata.name.split(".")[0]) for event in events] == [
        ("ADDED", "second"),
        ("MODIFIED", "second"),
        ("DELETED", "first"),
    ]
    assert events[1].object == second
    assert int(events[2].metadata.resource_version) > int(second.metadata.resource_version)


def test_a_watch_sees_an_object_enter_and_leave_its_selector(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    with server.client.watch(
        RESOURCE_SLICES, one.metadata.resource_version, field_selector=server.mine, label_selector="tier=x", timeout=60
    ) as watch:
        for labels in ({"tier": "x"}, {"tier": "x", "more": "y"}, {"tier": "z"}):
            one.metadata.labels = labels
            one = server.client.replace(RESOURCE_SLICES, one)
        events = [event.type for event in islice(watch, 3)]
    assert events == ["ADDED", "MODIFIED", "DELETED"]


def test_a_quiet_watch_gets_bookmarks(server: Server) -> None:
    one = server.client.create(RESOURCE_SLICES, server.slice("one"))
    with server.client.watch(RESOURCE_SLICES, one.metadata.resource_version, field_selector="metadata.name=none", timeout=100) as watch:
        if server.double:
            server.double.send_bookmarks()  # a real server sends one a minute
        event = next(iter(watch))
    assert event.type == "BOOKMARK"
    assert event.object is None
    assert int(event.metadata.resource_version) >= int(one.metadata.resource_version)


def test_a_watch_is_stopped_from_another_thread(server: Server) -> None:
    version = server.client.list(RESOURCE_SLICES, field_selector=server.mine).resource_version
    watch = server.client.watch(RESOURCE_SLICES, version, field_selector=server.mine, timeout=300)
    seen = threading.Event()

    def follow() -> None:
        for _ in watch:
            seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    server.client.create(RESOURCE_SLICES, server.slice("one"))
    assert seen.wait(30)
    watch.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_the_status_of_a_claim_is_written_apart(server: Server) -> None:
    claim = server.claim("one")
    claim.status = ResourceClaimStatus(allocation=AllocationResult())
    claim = server.client.create(RESOURCE_CLAIMS, claim)
    assert claim.status.allocation is None
    assert claim.spec.devices.requests[0].exactly == ExactDeviceRequest("class.example.com", allocation_mode="ExactCount", count=1)
    result = DeviceRequestAllocationResult("gpu", server.driver, "pool", "gpu-0")
    claim.status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=[result])))
    assert server.client.replace(RESOURCE_CLAIMS, claim).status.allocation is None
    allocated = server.client.replace(RESOURCE_CLAIMS, claim, subresource="status")
    assert allocated.status.allocation
    assert allocated.status.allocation.devices.results == [result]

    allocated.status.allocation.devices.results[0].device = "gpu-1"
    with pytest.raises(ApiInvalidError, match=r"status.allocation: Invalid value: .*field cannot be modified once set"):
        server.client.replace(RESOURCE_CLAIMS, allocated, subresource="status")
    allocated.status = ResourceClaimStatus(reserved_for=[ResourceClaimConsumerReference("pods", "one", str(uuid.uuid4()))])
    with pytest.raises(ApiInvalidError, match=r"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"):
        server.client.replace(RESOURCE_CLAIMS, allocated, subresource="status")


def test_the_spec_of_a_claim_never_changes(server: Server) -> None:
    claim = server.client.create(RESOURCE_CLAIMS, server.claim("one"))
    claim.spec.devices.requests[0].name = "other"
    with pytest.raises(ApiInvalidError, match=r"spec: Invalid value: .*field is immutable"):
        server.client.replace(RESOURCE_CLAIMS, claim)


def test_a_device_class_needs_no_namespace(server: Server) -> None:
    created = server.client.create(DEVICE_CLASSES, DeviceClass(metadata=ObjectMeta(name=f"class.{server.driver}")))
    server.client.delete(DEVICE_CLASSES, created.metadata.name, uid=created.metadata.uid)
