"""Claims that cannot be prepared: a clear error on the right pod, nothing held, and the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.gpu_nodes import DRIVER, GpuNode
from e2e.kube import Kube, Object, claim, claim_ref, pod


def run_with_a_bad_allocation(kube: Kube, one: Object, bad: str, node: str, *, pool: str, device: str) -> None:
    """Creates the pod with an allocation of its claim `bad` that no scheduler would make. A gate holds the scheduler back until it is written."""
    namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
    one["spec"]["schedulingGates"] = [{"name": "e2e/allocation"}]
    uid = kube.create(one)["metadata"]["uid"]
    result: dict[str, Any] = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    kube.patch_status("ResourceClaim", bad, namespace, {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name, "uid": uid}]})
    kube.patch("Pod", name, namespace, {"spec": {"schedulingGates": []}})


@pytest.mark.parametrize(
    ("pool", "device", "text"),
    [
        pytest.param("node-a", "gpu-ffff-00-00-0", "pool node-a has no device gpu-ffff-00-00-0", id="unknown device"),
        pytest.param("node-b", "gpu-0000-1b-00-0", "is in pool node-b, this node has pool node-a", id="another node's pool"),
    ],
)
def test_a_bad_allocation_is_reported_on_its_pod_and_the_pod_can_be_deleted(
    gpu_node: GpuNode, kube: Kube, namespace: str, pool: str, device: str, text: str
) -> None:
    kube.create(claim(namespace, "bad"))
    kube.create(claim(namespace, "good"))
    stuck = pod(namespace, "stuck", [claim_ref("good", claim="good"), claim_ref("bad", claim="bad")], node=gpu_node.name)
    run_with_a_bad_allocation(kube, stuck, "bad", gpu_node.name, pool=pool, device=device)
    kube.create(pod(namespace, "fine", [claim_ref("gpu", claim="good")], node=gpu_node.name))
    kube.wait(
        "the pod's event tells the reason",
        lambda: any(one["reason"] == "FailedPrepareDynamicResources" and text in one["message"] for one in kube.events(namespace, "stuck")),
        about=(namespace, "stuck"),
    )
    kube.wait_running(namespace, "fine")
    stored = kube.get("ResourceClaim", "good", namespace)
    assert stored is not None
    assert list(gpu_node.prepared_claims()) == [stored["metadata"]["uid"]], "the bad claim holds nothing, the other one of the same call is prepared"
    for name in ("stuck", "fine"):
        kube.delete("Pod", name, namespace)
    for name in ("stuck", "fine"):
        kube.wait_gone("Pod", name, namespace)
    kube.wait("everything is free again", lambda: not gpu_node.prepared_claims() and not gpu_node.cdi_specs())


def test_a_cdi_directory_that_cannot_be_written_is_reported_and_repaired(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    (stored,) = kube.apply(claim(namespace, "blocked"))
    block = gpu_node.node.host_path("/var/run/cdi") / f"k8s.gpu.nvidia.com-claim_{stored['metadata']['uid']}.json"
    block.mkdir()
    kube.create(pod(namespace, "blocked", [claim_ref("gpu", claim="blocked")], node=gpu_node.name))
    kube.wait(
        "the pod's event tells the reason",
        lambda: any("CDI directory must be writable" in one["message"] for one in kube.events(namespace, "blocked")),
        about=(namespace, "blocked"),
    )
    block.rmdir()
    kube.wait_running_after_a_failure(namespace, "blocked")
