"""Fixtures of the end-to-end suite. It runs against the cluster of `make cluster-up`; each test has a namespace of its own.

The node program runs as the suite's own processes, from the manifests (`E2E_INSTALL=processes`, the default), or as users install it, from image and
chart (`E2E_INSTALL=chart`). A test that asks for `process_nodes` or `chart` is about that way and left out in the other; one that is marked `once`
needs no node program and is left out with the chart.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dra_driver.errors import SettingsError
from e2e.cluster import Cluster, driver_image
from e2e.cluster.progress import Progress
from e2e.cluster.settings import default_cache
from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube
from e2e.pod_nodes import Chart, PodGpuNode
from e2e.process_nodes import ProcessGpuNode

MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"
PROFILES = ("h100-sxm-80gb", "a100-sxm-40gb")
OTHER_WAY = {"processes": "chart", "chart": "process_nodes"}  # the fixture that a way of installation lacks
INSTALL = os.environ.get("E2E_INSTALL", "processes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "once: needs no node program, so it runs with E2E_INSTALL=processes only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if INSTALL not in OTHER_WAY:
        raise pytest.UsageError(f"E2E_INSTALL={INSTALL}: it must be one of {', '.join(OTHER_WAY)}")
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item) -> bool:
    once = INSTALL == "chart" and item.get_closest_marker("once") is not None
    return once or OTHER_WAY[INSTALL] in getattr(item, "fixturenames", ())


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
def processes(cluster: Cluster, kube: Kube) -> Iterator[dict[str, ProcessGpuNode]]:
    """The node program as processes, after the manifests that we ship were applied; the nodes differ in their GPUs."""
    manifests = [MANIFESTS / "rbac.yaml", MANIFESTS / "deviceclass.yaml"]
    for path in manifests:
        kube.apply_file(path)
    nodes = {node.name: ProcessGpuNode(node, cluster, kube, profile) for node, profile in zip(cluster.nodes, PROFILES, strict=True)}
    yield nodes
    for one in nodes.values():
        if one.process is not None:
            assert one.stop() == 0
    for path in manifests:
        kube.delete_file(path)


@pytest.fixture(scope="session")
def chart(cluster: Cluster, kube: Kube) -> Iterator[Chart]:
    """The chart and its image; `install` installs it on simulated GPUs, and at the end it is uninstalled."""
    one = Chart(cluster, kube, driver_image.build(default_cache(), Progress()))
    yield one
    one.uninstall()


@pytest.fixture(scope="session")
def known_gpu_nodes(request: pytest.FixtureRequest) -> Mapping[str, GpuNode]:
    """The nodes, each with a program that may run or not."""
    if INSTALL == "chart":
        chart: Chart = request.getfixturevalue("chart")
        return {node.name: PodGpuNode(node, chart) for node in chart.cluster.nodes}
    processes: dict[str, ProcessGpuNode] = request.getfixturevalue("processes")
    return processes


@pytest.fixture
def gpu_nodes(known_gpu_nodes: Mapping[str, GpuNode]) -> Mapping[str, GpuNode]:
    """Both nodes, with their GPUs published and registered."""
    for one in known_gpu_nodes.values():
        one.ensure_started()
    for one in known_gpu_nodes.values():
        one.wait_published()
        one.wait_registered()
    return known_gpu_nodes


@pytest.fixture
def process_nodes(gpu_nodes: Mapping[str, GpuNode], processes: dict[str, ProcessGpuNode]) -> dict[str, ProcessGpuNode]:
    """The same as processes of ours, which can be stopped."""
    return processes


@pytest.fixture
def gpu_node(gpu_nodes: Mapping[str, GpuNode]) -> GpuNode:
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
