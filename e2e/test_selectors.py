"""Selectors as the API server and the scheduler judge them."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube, claim, claim_ref, pod
from e2e.process_nodes import ProcessGpuNode

FIRST_ATTEMPT = "device.attributes['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"


def test_the_selector_that_users_write_first_is_accepted_and_leaves_the_pod_pending(
    gpu_nodes: Mapping[str, GpuNode], kube: Kube, namespace: str
) -> None:
    kube.create(claim(namespace, "wrong", selectors=[FIRST_ATTEMPT]))
    kube.create(pod(namespace, "stuck", [claim_ref("gpu", claim="wrong")]))
    kube.wait(
        "the scheduler reports the CEL error",
        lambda: any("CEL runtime error: no such key: memory" in one["message"] for one in kube.events(namespace, "stuck")),
    )
    assert kube.phase(namespace, "stuck") == "Pending"


def test_a_selector_chooses_the_node_with_the_right_model(process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str) -> None:
    kube.create(claim(namespace, "ampere", selectors=["device.attributes['gpu.nvidia.com'].architecture == 'Ampere'"]))
    kube.create(pod(namespace, "a", [claim_ref("gpu", claim="ampere")]))
    kube.wait_running(namespace, "a")
    found = kube.get("Pod", "a", namespace)
    assert found is not None
    assert found["spec"]["nodeName"] == "node-b"
