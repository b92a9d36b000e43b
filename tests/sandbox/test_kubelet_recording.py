"""The stand-in says to a driver what the real kubelet of 1.37 said: the recording was made by e2e/test_kubelet_recording.py."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import ClaimRetryError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node, Pod, PodResourceClaim, PodSpec
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import ResourceClaimConsumerReference
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.calls import comparable
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from e2e import recorded_driver
from tests.kubelet.toy import allocated, result

RECORDING = Path(__file__).parent / "kubelet_1_37.jsonl"


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory:
        yield Path(directory)


def test_register_prepare_retry_restart_and_unprepare_are_as_recorded(short: Path) -> None:
    with ApiServer() as api:
        client = Client(api.connection, "test")
        client.create(NODES, Node(metadata=ObjectMeta(name="node-b")))
        record = short / "record.jsonl"
        with StandInKubelet(client, "node-b", short) as kubelet:
            plugin = recorded_driver.plugin(client, "node-b", short, short / "cdi", record)
            plugin.start()
            assert plugin.registrar.registered.wait(10)
            assert kubelet.wait_registered(recorded_driver.DRIVER)
            consumer = ResourceClaimConsumerReference(resource="pods", name="recorded", uid="pod-uid")
            claim = allocated(client, "recorded", result("only", "device", driver=recorded_driver.DRIVER, pool="node-b"), reserved_for=[consumer])
            pod = Pod(
                metadata=ObjectMeta(name="recorded", namespace="default", uid="pod-uid"),
                spec=PodSpec(node_name="node-b", resource_claims=[PodResourceClaim(name="device", resource_claim_name=claim.name)]),
            )
            with pytest.raises(ClaimRetryError, match="the first attempt fails on purpose"):
                kubelet.prepare_pod(pod)
            kubelet.prepare_pod(pod)
            plugin.registrar.registered.clear()
            kubelet.restart()
            assert plugin.registrar.registered.wait(10)
            assert kubelet.wait_registered(recorded_driver.DRIVER)
            kubelet.unprepare_pod(pod)
            plugin.stop()
        client.close()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert comparable(lines) == [json.loads(line) for line in RECORDING.read_text().splitlines()]
