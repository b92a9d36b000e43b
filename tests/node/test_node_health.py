"""A GPU that breaks: what the kubelet and the API server hear of it, and what goes on undisturbed."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.gpu import faults
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device
from dra_driver.kubelet import health
from dra_driver.kubelet._proto.dra_health_v1_pb2 import NodeWatchResourcesRequest
from dra_driver.kubelet._proto.dra_health_v1_pb2_grpc import DRAResourceHealthStub
from dra_driver.kubelet._proto.dra_v1_pb2 import Claim, NodePrepareResourcesRequest
from dra_driver.kubelet._proto.dra_v1_pb2_grpc import DRAPluginStub
from dra_driver.kubelet.health import Patience
from dra_driver.kubelet.server import dial
from dra_driver.node.driver import DRIVER
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.plugin import ClaimReference
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.node import SimulatedNode
from tests.kubelet.toy import allocated, result
from tests.node.test_node_program import Running, flags

NODE = "node-a"
FIRST, SECOND = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
LOST = '[[faults]]\ngpu = "0000:43:00.0"\nerror = "GPU_IS_LOST"\n'
HANGS = '[[faults]]\ngpu = "0000:43:00.0"\ncall = "nvmlDeviceGetMemoryInfo"\nhangs = true\n'


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as api:
        one = Client(api.connection, "test")
        yield one
        one.close()


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory:
        yield Path(directory)


@pytest.fixture
def node(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedNode]:
    monkeypatch.setattr(faults, "INTERVAL", 0.02)
    monkeypatch.setattr(faults, "ANSWER_TIME", 0.1)
    monkeypatch.setattr(health, "FAILING", Patience(2, 0.0))
    monkeypatch.setattr(health, "RECOVERING", Patience(2, 0.0))
    with SimulatedNode(client, NODE, profile="h100-sxm-80gb", gpus=2) as one:
        yield one


def wait_published(client: Client, condition: Callable[[Device, Device], bool]) -> tuple[Device, Device]:
    """Until the two published devices are as wanted; looks again at every change."""
    while True:
        listing = client.list(RESOURCE_SLICES)
        devices = [device for one in listing.items for device in one.spec.devices]
        if len(devices) == 2 and condition(*devices):
            return devices[0], devices[1]
        with client.watch(RESOURCE_SLICES, listing.resource_version) as events:
            next(iter(events))


def keys(device: Device) -> list[str]:
    return [taint.key for taint in device.taints]


def shown(node: SimulatedNode, device: str) -> str:
    return node.kubelet.health.of(DRIVER, NODE, device).health


@pytest.mark.parametrize(
    ("fault", "key", "text"), [(LOST, "gpu-lost", "GPU is lost"), (HANGS, "not-answering", "a call hangs")], ids=["lost", "hangs"]
)
def test_a_broken_gpu_is_shown_and_tainted_and_both_end_with_its_recovery(
    node: SimulatedNode, client: Client, fault: str, key: str, text: str
) -> None:
    assert node.kubelet.health.wait_for(lambda: {shown(node, FIRST), shown(node, SECOND)} == {"Healthy"})
    before = wait_published(client, lambda first, second: not first.taints and not second.taints)
    node.faults.write_text(fault)
    devices = wait_published(client, lambda _, second: keys(second) == [f"{DRIVER}/{key}"])
    assert devices[1].taints[0].effect == "NoSchedule"
    assert [device.attributes for device in devices] == [device.attributes for device in before], "it keeps what was known of it"
    assert devices[0].taints == []
    assert node.kubelet.health.wait_for(lambda: shown(node, SECOND) == "Unhealthy")
    assert text in node.kubelet.health.of(DRIVER, NODE, SECOND).message
    assert shown(node, FIRST) == "Healthy"
    node.faults.unlink()
    assert wait_published(client, lambda _, second: not second.taints) == before
    assert node.kubelet.health.wait_for(lambda: shown(node, SECOND) == "Healthy")


def test_a_hung_call_of_nvml_delays_neither_prepare_nor_unprepare(node: SimulatedNode, client: Client) -> None:
    plugin = node.kubelet.registry.plugin(DRIVER)
    claims = []
    for name, device in (("one", FIRST), ("two", SECOND)):
        claim = allocated(client, name, result(device, driver=DRIVER, pool=NODE))
        claims.append(ClaimReference(claim.namespace, claim.name, claim.uid))
    plugin.prepare(claims[:1])
    node.faults.write_text(HANGS)
    wait_published(client, lambda _, second: keys(second) == [f"{DRIVER}/not-answering"])
    begin = time.monotonic()
    plugin.unprepare(claims[:1])
    plugin.prepare(claims)
    plugin.unprepare(claims)
    assert time.monotonic() - begin < 5
    begin = time.monotonic()
    node.stop_program()
    assert time.monotonic() - begin < 10, "a thread that hangs keeps nobody from ending"
    node.faults.unlink()


def test_abandoned_streams_waiting_prepares_and_a_hung_call_of_nvml_together_keep_nobody_waiting(node: SimulatedNode, client: Client) -> None:
    plugin = node.kubelet.registry.plugin(DRIVER)

    def claim(name: str, device: str) -> ClaimReference:
        made = allocated(client, name, result(device, driver=DRIVER, pool=NODE))
        return ClaimReference(made.namespace, made.name, made.uid)

    held, other, later = claim("held", FIRST), claim("other", SECOND), claim("later", SECOND)
    plugin.prepare([held, other])
    node.faults.write_text(HANGS)
    wait_published(client, lambda _, second: keys(second) == [f"{DRIVER}/not-answering"])
    with dial(Path(plugin.endpoint)) as channel:
        streams = [DRAResourceHealthStub(channel).NodeWatchResources(NodeWatchResourcesRequest()) for _ in range(20)]  # nobody reads them
        waiting = []
        for number in range(20):
            one = claim(f"waits-{number}", FIRST)
            request = NodePrepareResourcesRequest(claims=[Claim(namespace=one.namespace, name=one.name, uid=one.uid)])
            waiting.append(DRAPluginStub(channel).NodePrepareResources.future(request, timeout=45))
        deadline = time.monotonic() + 20
        while node.program.plugin.metrics.running.by_operation().get(("prepare",)) != 20:
            assert time.monotonic() < deadline, "not all prepares have come"
            time.sleep(0.01)
        plugin.unprepare([other])
        plugin.prepare([later])
        assert not any(call.done() for call in waiting)
        for call in [*waiting, *streams]:
            call.cancel()
    plugin.unprepare([held])
    plugin.prepare([claim("next", FIRST)])
    node.faults.unlink()


def test_a_restart_with_a_lost_gpu_changes_nothing_of_its_device(node: SimulatedNode, client: Client) -> None:
    node.faults.write_text(LOST)
    _, second = wait_published(client, lambda _, second: keys(second) == [f"{DRIVER}/gpu-lost"])
    claim = allocated(client, "c", result(SECOND, driver=DRIVER, pool=NODE))
    reference = ClaimReference(claim.namespace, claim.name, claim.uid)
    node.kubelet.registry.plugin(DRIVER).prepare([reference])
    versions = [one.metadata.resource_version for one in client.list(RESOURCE_SLICES).items]
    for _ in range(2):
        node.restart_program()
        assert [one.metadata.resource_version for one in client.list(RESOURCE_SLICES).items] == versions
        assert wait_published(client, lambda *_: True)[1] == second
        assert node.kubelet.health.wait_for(lambda: shown(node, SECOND) == "Unhealthy")
    node.kubelet.registry.plugin(DRIVER).unprepare([reference])


def test_a_gpu_that_recovered_during_a_restart_still_has_to_prove_it(node: SimulatedNode, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    node.faults.write_text(LOST)
    _, second = wait_published(client, lambda _, second: keys(second) == [f"{DRIVER}/gpu-lost"])
    node.program.stop()
    node.faults.unlink()
    monkeypatch.setattr(health, "RECOVERING", Patience(2, 3600.0))
    node.restart_program()
    assert wait_published(client, lambda *_: True)[1] == second


def test_it_ends_with_sigterm_while_a_health_stream_is_open(root: Path, client: Client) -> None:
    client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
    with StandInKubelet(client, NODE, root) as kubelet:
        program = Running(
            flags(root, api_server=client.server, plugin_dir=str(root / "plugins" / DRIVER), registry_dir=str(root / "plugins_registry"))
        )
        assert kubelet.wait_registered(DRIVER)
        assert kubelet.health.wait_for(lambda: kubelet.health.of(DRIVER, NODE, FIRST).health == "Healthy")
        begin = time.monotonic()
        assert program.end(signal.SIGTERM) == 0
        assert time.monotonic() - begin < 5
        assert not [path for path in root.rglob("*.sock") if path != kubelet.pod_resources_socket]
        assert not [line for line in program.lines if line["level"] == "error"]
