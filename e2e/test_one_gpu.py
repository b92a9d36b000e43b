"""One GPU, from a claim to the container that sees it: the files that we ship, on the real scheduler, kubelet and containerd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from e2e.conftest import MANIFESTS
from e2e.gpu_nodes import DRIVER, GpuNode
from e2e.kube import Kube
from e2e.process_nodes import ProcessGpuNode

LIST_DEVICES = "cd /dev; for node in nvidia*; do [ -c $node ] && stat -c '%n %F %t:%T' $node; done; true"


def claim_of(kube: Kube, namespace: str, pod: str) -> dict:  # type: ignore[type-arg]
    found = kube.get("Pod", pod, namespace)
    assert found is not None
    (status,) = found["status"]["resourceClaimStatuses"]
    claim = kube.get("ResourceClaim", status["resourceClaimName"], namespace)
    assert claim is not None
    return claim


def test_the_shipped_example_runs_and_sees_its_gpu_and_no_other(gpu_nodes: Mapping[str, GpuNode], kube: Kube, namespace: str) -> None:
    kube.apply_file(MANIFESTS / "resourceclaimtemplate.yaml", namespace)
    (pod,) = kube.apply_file(MANIFESTS / "pod.yaml", namespace)
    name = pod["metadata"]["name"]
    kube.wait_running(namespace, name)

    claim = claim_of(kube, namespace, name)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == DRIVER
    node = gpu_nodes[result["pool"]]
    device = next(one for one in node.devices() if one["name"] == result["device"])

    spec = json.loads(node.cdi_specs()[claim["metadata"]["uid"]].read_text())
    assert spec["annotations"]["resource.kubernetes.io/claim"] == f"{namespace}/{claim['metadata']['name']}"
    (expected,) = spec["devices"][0]["containerEdits"]["deviceNodes"]
    in_container = kube.exec(namespace, name, "sh", "-c", LIST_DEVICES)
    gpus = [line for line in in_container.splitlines() if line.removeprefix("nvidia")[:1].isdigit()]
    number = Path(expected["path"]).name.removeprefix("nvidia")
    assert gpus == [f"nvidia{number} character special file {expected['major']:x}:{expected['minor']:x}"], in_container
    assert "nvidiactl character special file c3:ff" in in_container
    assert device["attributes"]["uuid"]["string"].startswith("GPU-")

    environment = kube.exec(namespace, name, "env").splitlines()
    assert "NVIDIA_VISIBLE_DEVICES=void" in environment
    assert "libcuda.so.1" in kube.exec(namespace, name, "ls", "/usr/lib/x86_64-linux-gnu")


def test_deletion_unprepares(gpu_nodes: Mapping[str, GpuNode], kube: Kube, namespace: str) -> None:
    kube.apply_file(MANIFESTS / "resourceclaimtemplate.yaml", namespace)
    (pod,) = kube.apply_file(MANIFESTS / "pod.yaml", namespace)
    name = pod["metadata"]["name"]
    kube.wait_running(namespace, name)
    claim = claim_of(kube, namespace, name)
    uid = claim["metadata"]["uid"]
    node = gpu_nodes[claim["status"]["allocation"]["devices"]["results"][0]["pool"]]
    assert node.prepared_claims()[uid] == [claim["status"]["allocation"]["devices"]["results"][0]["device"]]
    assert uid in node.cdi_specs()
    kube.delete("Pod", name, namespace)
    kube.wait_gone("Pod", name, namespace)
    assert uid not in node.prepared_claims()
    assert uid not in node.cdi_specs()


def test_the_shipped_manifests_are_accepted_as_they_are(process_nodes: dict[str, ProcessGpuNode], kube: Kube) -> None:
    for path in MANIFESTS.glob("*.yaml"):
        kube.kubectl("apply", "--dry-run=server", f"--filename={path}")
