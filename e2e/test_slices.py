"""What a node publishes, and that it comes back whatever happens to it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from e2e.gpu_nodes import DRIVER, GpuNode
from e2e.kube import Kube

BACK = 10.0  # seconds; both Go drivers leave a hole of 18 to 30


def test_slices_have_the_exact_attributes_of_the_gpus(gpu_nodes: Mapping[str, GpuNode], kube: Kube) -> None:
    node = gpu_nodes["node-a"]
    (published,) = node.slices()
    owner = kube.get("Node", "node-a")
    assert owner is not None
    assert published["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": owner["metadata"]["uid"], "controller": True}
    ]
    spec = published["spec"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"], spec["pool"]["resourceSliceCount"]) == (DRIVER, "node-a", "node-a", 1)
    assert [device["name"] for device in spec["devices"]] == sorted(device["name"] for device in spec["devices"])
    first = spec["devices"][0]
    uuid = first["attributes"].pop("uuid")["string"]
    assert uuid.startswith("GPU-")
    assert first == {
        "name": "gpu-0000-1b-00-0",
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "575.57.8"},
            "cudaDriverVersion": {"version": "12.9.0"},
            "addressingMode": {"string": "HMM"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
            "resource.kubernetes.io/numaNode": {"int": 0},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    uuids = [device["attributes"].get("uuid", {"string": uuid})["string"] for one in gpu_nodes.values() for device in one.devices()]
    assert len(set(uuids)) == 16, "identities differ, also between nodes"


def back(node: GpuNode, before: set[str]) -> float:
    """Seconds until eight devices are there in slices that were not there before."""
    start = time.monotonic()
    node.kube.wait(
        f"slices of {node.name} are back",
        lambda: len(node.devices()) == 8 and not before & {one["metadata"]["uid"] for one in node.slices()},
        limit=BACK,
    )
    return time.monotonic() - start


def uids(node: GpuNode) -> set[str]:
    return {one["metadata"]["uid"] for one in node.slices()}


def test_slices_deleted_by_hand_come_back(gpu_node: GpuNode, kube: Kube) -> None:
    before = uids(gpu_node)
    for one in gpu_node.slices():
        kube.delete("ResourceSlice", one["metadata"]["name"])
    back(gpu_node, before)


def test_slices_come_back_after_a_kubelet_restart_wiped_them(gpu_node: GpuNode) -> None:
    before = uids(gpu_node)
    gpu_node.node.restart_kubelet()
    gpu_node.kube.wait("the kubelet wiped the slices", lambda: not before & uids(gpu_node))
    back(gpu_node, before)
    gpu_node.wait_registered()


def test_slices_come_back_with_a_recreated_node_object_and_belong_to_it(gpu_node: GpuNode, kube: Kube) -> None:
    before = uids(gpu_node)
    gpu_node.recreate_node_object()
    back(gpu_node, before)
    owner = kube.get("Node", gpu_node.name)
    assert owner is not None
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in gpu_node.slices()} == {owner["metadata"]["uid"]}
    kube.wait("the node is Ready", lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in node_conditions(kube, gpu_node.name)))


def node_conditions(kube: Kube, name: str) -> list[dict[str, str]]:
    found = kube.get("Node", name)
    return found["status"]["conditions"] if found else []


def test_a_restart_of_the_node_program_writes_nothing(gpu_node: GpuNode) -> None:
    before = {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in gpu_node.slices()}
    gpu_node.restart()
    gpu_node.wait_registered()
    assert {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in gpu_node.slices()} == before


def test_a_slice_changed_by_another_hand_is_put_right(gpu_node: GpuNode, kube: Kube) -> None:
    (published,) = gpu_node.slices()
    published["spec"]["devices"][0]["attributes"]["productName"]["string"] = "NVIDIA Riva TNT"
    kube.apply(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": published["metadata"]["name"]}, "spec": published["spec"]}
    )
    kube.wait(
        "the attribute is right again",
        lambda: gpu_node.devices()[0]["attributes"]["productName"]["string"] == "NVIDIA H100 80GB HBM3",
        limit=BACK,
    )


@pytest.mark.parametrize("name", ["node-a", "node-b"])
def test_every_node_has_its_own_pool(gpu_nodes: Mapping[str, GpuNode], name: str) -> None:
    assert {one["spec"]["pool"]["name"] for one in gpu_nodes[name].slices()} == {name}
