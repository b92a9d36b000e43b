"""Fixtures of the end-to-end suite. It runs against the cluster of `make cluster-up`; each test has a namespace of its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import SettingsError
from e2e.cluster import Cluster
from e2e.gpu_nodes import PROFILES, GpuNode
from e2e.kube import Kube

MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    try:
        return Cluster.load(Path(os.environ["E2E_STATE"])) if "E2E_STATE" in os.environ else Cluster.load()
    except SettingsError as error:
        pytest.exit(f"{error} (or `make cluster-up`)", returncode=2)


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Path:
    return Path(os.environ.get("KUBECONFIG") or cluster.kubeconfig)


@pytest.fixture(scope="session")
def kube(kubeconfig: Path, cluster: Cluster) -> Iterator[Kube]:
    one = Kube(kubeconfig, str(cluster.settings.tools / "kubectl"))
    yield one
    one.close()


@pytest.fixture(scope="session")
def installed(kube: Kube) -> None:
    """What an admin installs, from the files that we ship."""
    kube.apply_file(MANIFESTS / "rbac.yaml")
    kube.apply_file(MANIFESTS / "deviceclass.yaml")


@pytest.fixture(scope="session")
def started_gpu_nodes(cluster: Cluster, kube: Kube, installed: None) -> Iterator[dict[str, GpuNode]]:
    nodes = {node.name: GpuNode(node, cluster, kube, profile) for node, profile in zip(cluster.nodes, PROFILES, strict=True)}
    for one in nodes.values():
        one.start()
    yield nodes
    for one in nodes.values():
        if one.process is not None:
            assert one.stop() == 0


@pytest.fixture
def gpu_nodes(started_gpu_nodes: dict[str, GpuNode]) -> dict[str, GpuNode]:
    """Both nodes, with their GPUs published and registered."""
    for one in started_gpu_nodes.values():
        if one.process is None:
            one.start()
        one.wait_published()
        one.wait_registered()
    return started_gpu_nodes


@pytest.fixture
def gpu_node(gpu_nodes: dict[str, GpuNode]) -> GpuNode:
    """The node with eight H100."""
    return gpu_nodes["node-a"]


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    for one in kube.all("Pod", name):
        kube.delete("Pod", one["metadata"]["name"], name)
    kube.wait("all pods of the test are gone", lambda: not kube.all("Pod", name))
    for one in kube.all("ResourceClaim", name):
        kube.delete("ResourceClaim", one["metadata"]["name"], name)
    kube.delete("Namespace", name)
