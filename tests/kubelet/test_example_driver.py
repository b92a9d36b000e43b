"""The driver of the package's docstring is complete: it runs, as it stands there, and a pod sees its device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS, Container, ContainerResourceClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    CELDeviceSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.container import start_container
from dra_driver.sandbox.control_plane import ControlPlane
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from e2e.example_driver import DRIVER, source
from tests.kubelet.toy import NODE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kubelet(client: Client, short: Path) -> Iterator[StandInKubelet]:
    with StandInKubelet(client, NODE, short) as one:
        yield one


@pytest.fixture
def program(api: ApiServer, kubelet: StandInKubelet, short: Path) -> Iterator[subprocess.Popen[bytes]]:
    entry = {"name": "test", "cluster": {"server": api.url}, "user": {}, "context": {"cluster": "test", "user": "test"}}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": [entry], "users": [entry], "contexts": [entry], "current-context": "test"}
    (short / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    environment = {**os.environ, "NODE_NAME": NODE, "KUBECONFIG": str(short / "kubeconfig")}
    command = [sys.executable, "-m", "e2e.example_driver", f"--kubelet={short}", f"--cdi={short / 'cdi'}"]
    with (short / "log").open("wb") as log:
        one = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)
    yield one
    one.kill()
    one.wait()


def test_it_is_at_most_forty_lines() -> None:
    assert len(source().splitlines()) <= 40


def test_a_pod_sees_the_device_and_a_signal_ends_the_driver(
    program: subprocess.Popen[bytes], kubelet: StandInKubelet, client: Client, short: Path
) -> None:
    assert kubelet.wait_registered(DRIVER, 60)
    listing = client.list(RESOURCE_SLICES)
    if not listing.items:
        with client.watch(RESOURCE_SLICES, listing.resource_version) as events:
            next(iter(events))
    assert [[device.name for device in one.spec.devices] for one in client.list(RESOURCE_SLICES).items] == [["red", "green"]]

    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].color == 'green'"
    selectors = [DeviceSelector(cel=CELDeviceSelector(expression))]
    client.create(DEVICE_CLASSES, DeviceClass(metadata=ObjectMeta(name="lamp"), spec=DeviceClassSpec(selectors=selectors)))
    exactly = ExactDeviceRequest(device_class_name="lamp", allocation_mode="ExactCount", count=1)
    wanted = ResourceClaimSpec(devices=DeviceClaim(requests=[DeviceRequest(name="light", exactly=exactly)]))
    client.create(RESOURCE_CLAIMS, ResourceClaim(metadata=ObjectMeta(name="lamp", namespace="default"), spec=wanted))
    container = Container("main", resources=ResourceRequirements([ContainerResourceClaim("lamp")]))
    spec = PodSpec(resource_claims=[PodResourceClaim("lamp", resource_claim_name="lamp")], containers=[container])
    pod = client.create(PODS, Pod(metadata=ObjectMeta(name="desk", namespace="default"), spec=spec))
    pod = ControlPlane(client).schedule(pod, NODE)

    kubelet.prepare_pod(pod)
    assert start_container(kubelet.cdi_device_ids(pod, container), directories=[short / "cdi"]).environment == ("LAMP_GREEN=lamp-18",)
    kubelet.unprepare_pod(pod)
    assert not list((short / "cdi").glob("*.json"))

    program.send_signal(signal.SIGTERM)
    assert program.wait(30) == 0
    told = [json.loads(line) for line in (short / "log").read_text().splitlines()]
    assert [one["devices"] for one in told if one["msg"] == "slices published"] == [2], "its log says what it did, and with what"
    assert not [path for path in short.rglob("*.sock") if path != kubelet.pod_resources_socket]
