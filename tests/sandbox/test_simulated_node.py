"""Pods with claims live and die on a simulated node: our node program, the kubelet stand-in and the API-server double together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import ClaimRetryError, HostError, NoFitError, SettingsError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS, Container, ContainerResourceClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
)
from dra_driver.node.driver import DRIVER
from dra_driver.sandbox import manifests
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.control_plane import ControlPlane
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.node import SimulatedNode

MANIFESTS = Path(__file__).parents[2] / "manifests"


@dataclass
class World:
    client: Client
    node: SimulatedNode
    control_plane: ControlPlane
    template: ResourceClaimTemplate

    def pod(self, name: str, *, claim: str | None = None) -> Pod:
        """A pod that is stored and has its claims; `claim` is one that exists, else one is made from the template."""
        use = PodResourceClaim("gpu", resource_claim_name=claim, resource_claim_template_name=None if claim else self.template.metadata.name)
        container = Container("main", resources=ResourceRequirements([ContainerResourceClaim("gpu")]))
        pod = Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=PodSpec(resource_claims=[use], containers=[container]))
        return self.control_plane.create_claims(self.client.create(PODS, pod))

    def start(self, pod: Pod) -> set[str]:
        """Schedules and starts; the GPUs' device nodes that the container has."""
        pod = self.control_plane.schedule(pod, self.node.name)
        container = self.node.start_pod(pod)["main"]
        assert container.environment == ("NVIDIA_VISIBLE_DEVICES=void",)
        return {node.path for node in container.device_nodes if node.path[-1].isdigit()}

    def end(self, pod: Pod) -> None:
        self.client.delete(PODS, pod.metadata.name, "default")
        self.node.kubelet.unprepare_pod(pod)
        self.control_plane.release(pod)
        self.client.delete(PODS, pod.metadata.name, "default", grace_period=0)

    def cdi_files(self) -> int:
        return len(list(self.node.settings.cdi_dir.rglob("*.json")))


@pytest.fixture
def world() -> Iterator[World]:
    with ApiServer() as api:
        client = Client(api.connection, "test")
        with SimulatedNode(client, "node-a", profile="h100-sxm-80gb", gpus=2) as node:
            objects = [obj for name in ("deviceclass.yaml", "resourceclaimtemplate.yaml") for obj in manifests.read(MANIFESTS / name)]
            for obj in objects:
                manifests.create(client, obj)
            yield World(client, node, ControlPlane(client), next(obj for obj in objects if isinstance(obj, ResourceClaimTemplate)))
        client.close()


def test_each_pod_gets_a_gpu_of_its_own_until_there_is_none_left(world: World) -> None:
    first, second, third = (world.pod(name) for name in ("first", "second", "third"))
    assert [world.start(pod) for pod in (first, second)] == [{"/dev/nvidia0"}, {"/dev/nvidia1"}]
    with pytest.raises(NoFitError, match="2 in use"):
        world.start(third)
    world.end(first)
    assert world.start(third) == {"/dev/nvidia0"}
    world.end(second)
    world.end(third)
    assert world.cdi_files() == 0
    assert world.client.list(RESOURCE_CLAIMS).items == []
    assert world.client.list(PODS).items == []


def test_a_shared_claim_gives_the_same_gpu_and_outlives_its_first_pod(world: World) -> None:
    claim = ResourceClaim(metadata=ObjectMeta(name="shared", namespace="default"), spec=world.template.spec.spec)
    world.client.create(RESOURCE_CLAIMS, claim)
    first, second = world.pod("first", claim="shared"), world.pod("second", claim="shared")
    assert world.start(first) == world.start(second) == {"/dev/nvidia0"}
    assert [call.name for call in world.node.kubelet.calls].count("NodePrepareResources") == 1
    world.end(first)
    assert world.cdi_files() == 2, "the spec, and what it tells about the device"
    world.end(second)
    assert world.cdi_files() == 0
    left = world.client.get(RESOURCE_CLAIMS, "shared", "default")
    assert (left.status.allocation, left.status.reserved_for, left.metadata.finalizers) == (None, [], [])


def test_a_restarted_kubelet_wipes_the_slices_and_they_come_back(world: World) -> None:
    pod = world.pod("first")
    assert world.start(pod) == {"/dev/nvidia0"}
    before = world.client.list(RESOURCE_SLICES)
    with world.client.watch(RESOURCE_SLICES, before.resource_version) as watch:
        world.node.kubelet.restart()
        events = iter(watch)
        assert [next(events).type for _ in range(2)] == ["DELETED", "ADDED"]
    assert world.node.kubelet.wait_registered(DRIVER)
    (after,) = world.client.list(RESOURCE_SLICES).items
    assert after.spec.devices == before.items[0].spec.devices
    world.end(pod)
    assert world.cdi_files() == 0


def test_the_node_program_knows_its_claims_after_a_restart(world: World) -> None:
    pod = world.pod("first")
    world.start(pod)
    world.node.restart_program()
    world.end(pod)
    assert world.cdi_files() == 0


@pytest.mark.parametrize("specs", [True, False], ids=["with CDI specs", "without"])
def test_a_node_program_whose_journal_was_lost_gives_no_gpu_of_a_running_pod_away(world: World, specs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_driver.kubelet.claims.PATIENCE", 0.5)
    pod, other = world.pod("first"), world.pod("other")
    world.start(pod)
    world.node.stop_program()
    for path in world.node.settings.plugin_dir.glob("state.db*"):
        path.unlink()
    if not specs:
        shutil.rmtree(world.node.settings.cdi_dir)
    world.node.restart_program()
    assert world.cdi_files() == 2
    (claim,), (wrong,) = world.control_plane.claims(pod), world.control_plane.claims(other)
    wrong.status = replace(claim.status, reserved_for=[ResourceClaimConsumerReference(resource="pods", name="other", uid=other.metadata.uid)])
    world.client.replace(RESOURCE_CLAIMS, wrong, subresource="status")
    with pytest.raises(ClaimRetryError, match=f"is still prepared for claim default/{claim.metadata.name}"):
        world.node.start_pod(other)
    world.end(pod)
    assert world.node.start_pod(other)
    world.node.kubelet.unprepare_pod(other)
    assert world.cdi_files() == 0


def test_a_pod_cannot_end_while_the_node_program_is_down(world: World) -> None:
    pod = world.pod("first")
    world.start(pod)
    world.node.stop_program()
    with pytest.raises(ClaimRetryError, match=r"DRA driver gpu.nvidia.com is not registered"):
        world.end(pod)
    world.node.restart_program()
    world.end(pod)
    assert world.cdi_files() == 0


def test_files_stand_in_for_device_nodes_even_where_real_ones_could_be_made(world: World) -> None:
    nodes = [path for path in (world.node.settings.driver_root / "dev").rglob("*") if not path.is_dir()]
    assert nodes
    assert all(path.is_file() for path in nodes)


def test_old_slices_that_stay_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInKubelet, "wait_wiped", lambda *_: False)
    with ApiServer() as api:
        client = Client(api.connection, "test")
        node = SimulatedNode(client, "node-a", profile="h100-sxm-80gb", gpus=1)
        with pytest.raises(HostError, match="the kubelet has not removed the old ResourceSlices within 30 s"), node:
            pass
        assert not node.root.exists()
        client.close()


def test_an_unknown_profile_or_too_many_gpus_are_refused_and_leave_nothing_behind() -> None:
    with ApiServer() as api:
        client = Client(api.connection, "test")
        with pytest.raises(SettingsError, match=r"'h1000' does not exist; there are .*h100-sxm-80gb"):
            SimulatedNode(client, "node-a", profile="h1000")
        with pytest.raises(SettingsError, match="900 GPUs were asked for, 0 to 248 are possible"):
            SimulatedNode(client, "node-a", profile="h100-sxm-80gb", gpus=900)
        client.close()
