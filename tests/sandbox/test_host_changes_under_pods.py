"""A host that changes while pods come and run: nodes of the driver that are late, a driver that is replaced, an emptied CDI directory."""

from __future__ import annotations

import json
import logging
import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import ClaimRetryError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS, Container, ContainerResourceClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.sandbox import manifests
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.container import StartedContainer, start_container
from dra_driver.sandbox.control_plane import ControlPlane
from dra_driver.sandbox.node import SimulatedNode

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = "/var/run/kubernetes.io/dra-device-attributes"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")


class World:
    """One simulated node with two GPUs."""

    def __init__(self, client: Client, node: SimulatedNode) -> None:
        self.client, self.node = client, node
        self.root = node.settings.driver_root
        self._plane = ControlPlane(client)
        for name in ("deviceclass.yaml", "resourceclaimtemplate.yaml"):
            for one in manifests.read(MANIFESTS / name):
                manifests.create(client, one)

    def pod(self, name: str) -> Pod:
        """A pod with a claim that is allocated on the node."""
        container = Container("main", resources=ResourceRequirements([ContainerResourceClaim("gpu")]))
        spec = PodSpec(resource_claims=[PodResourceClaim("gpu", resource_claim_template_name="one-gpu-40gi")], containers=[container])
        stored = self.client.create(PODS, Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
        return self._plane.schedule(self._plane.create_claims(stored), self.node.name)

    def start(self, pod: Pod) -> StartedContainer:
        return self.node.start_pod(pod)["main"]

    def restart_container(self, pod: Pod) -> StartedContainer:
        """As the kubelet does: with what the driver told it when the pod started."""
        ids = self.node.kubelet.cdi_device_ids(pod, pod.spec.containers[0])
        return start_container(ids, directories=[self.node.settings.cdi_dir])


@pytest.fixture
def world() -> Iterator[World]:
    with ApiServer() as api:
        client = Client(api.connection, "test")
        with SimulatedNode(client, "node-a", profile="h100-sxm-80gb", gpus=2) as node:
            yield World(client, node)
        client.close()


class Repairs(logging.Handler):
    """Waits until the program says that it wrote a spec again."""

    def __init__(self) -> None:
        super().__init__()
        self._told: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "CDI spec of a prepared claim was missing or outdated and is written again":
            self._told.put(str(record.__dict__["claim"]))

    def wait_for(self, pod: str) -> None:
        assert pod in self._told.get(timeout=30)


@pytest.fixture
def repairs() -> Iterator[Repairs]:
    handler, log = Repairs(), logging.getLogger("dra_driver.kubelet.claims")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def paths(container: StartedContainer) -> set[str]:
    return {node.path for node in container.device_nodes}


def test_a_late_device_node_fails_its_claim_until_it_is_there_and_then_nothing_is_missing(world: World) -> None:
    pod = world.pod("first")
    hidden = (world.root / "dev" / "nvidia0").rename(world.root / "dev" / "late")
    with pytest.raises(ClaimRetryError, match=r"device node .*nvidia0: No such file or directory"):
        world.start(pod)
    assert {"/dev/nvidia1"} < paths(world.start(world.pod("other"))), "other claims are not affected"
    hidden.rename(world.root / "dev" / "nvidia0")
    assert paths(world.start(pod)) == {f"/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")}


def test_after_the_driver_moved_a_new_claim_and_a_prepared_one_show_its_new_place(world: World, repairs: Repairs) -> None:
    first, second = world.pod("first"), world.pod("second")
    old = {mount.host_path for mount in world.start(first).mounts}
    assert str(world.root / LIBRARIES / "libcuda.so.575.57.08") in old
    moved = world.root / "usr/lib64"
    os.rename(world.root / LIBRARIES, moved)  # noqa: PTH104
    assert str(moved / "libcuda.so.575.57.08") in {mount.host_path for mount in world.start(second).mounts}
    repairs.wait_for("first-gpu")
    now = {mount.host_path for mount in world.restart_container(first).mounts}
    assert str(moved / "libcuda.so.575.57.08") in now
    assert not any(str(LIBRARIES) in path for path in now)


def test_a_container_restarts_with_its_gpu_after_the_cdi_directory_was_emptied(world: World, repairs: Repairs) -> None:
    pod = world.pod("first")
    before = world.start(pod)
    for path in sorted(world.node.settings.cdi_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    repairs.wait_for("first-gpu")
    assert world.restart_container(pod) == before
    assert all(Path(mount.host_path).exists() for mount in before.mounts)


def test_a_container_reads_what_its_gpu_is(world: World) -> None:
    container = world.start(world.pod("first"))
    (mount,) = [one for one in container.mounts if one.container_path.startswith(BASE)]
    assert mount.container_path == f"{BASE}/resourceclaimtemplates/gpu/gpu/gpu.nvidia.com-metadata.json"
    told: dict[str, Any] = json.loads(Path(mount.host_path).read_text().splitlines()[0])
    (device,) = told["requests"][0]["devices"]
    assert device["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": "0000:1b:00.0"}
    assert device["attributes"]["uuid"]["string"].startswith("GPU-")
