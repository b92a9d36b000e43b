"""What an allocation of our GPUs means on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import ClaimError, DeviceNotReadyError, UnsupportedRequestError
from dra_driver.gpu.inventory import discover
from dra_driver.gpu.nvml import initialize
from dra_driver.gpu.simulator import simulate
from dra_driver.k8s.objects.resource import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
)
from dra_driver.node.driver import DRIVER, GpuDriver


@pytest.fixture
def driver(tmp_path: Path) -> GpuDriver:
    nvml, paths = simulate("h100-sxm-80gb", tmp_path / "root", gpus=2, seed="node-a")
    initialize(nvml)
    return GpuDriver("node-a", discover(nvml, paths), paths)


def allocation(device: str = "gpu-0000-43-00-0", pool: str = "node-a", **more: Any) -> DeviceAllocationResult:
    return DeviceAllocationResult(results=[DeviceRequestAllocationResult(request="gpu", driver=DRIVER, pool=pool, device=device, **more)])


def test_a_whole_gpu_is_its_device_node_and_the_common_parts(driver: GpuDriver) -> None:
    plan = driver.plan(allocation())
    (planned,) = plan.devices
    assert planned.uuid == driver.devices()[1].attributes["uuid"].string
    assert [node.path for node in planned.edits.device_nodes] == ["/dev/nvidia1"]
    assert plan.common.env == ("NVIDIA_VISIBLE_DEVICES=void",)
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= {node.path for node in plan.common.device_nodes}


def test_an_unknown_device_is_named_with_those_that_there_are(driver: GpuDriver) -> None:
    with pytest.raises(ClaimError, match="pool node-a has no device gpu-9; it has gpu-0000-1b-00-0, gpu-0000-43-00-0"):
        driver.plan(allocation("gpu-9"))


def test_another_nodes_pool_is_named(driver: GpuDriver) -> None:
    with pytest.raises(ClaimError, match="is in pool node-b, this node has pool node-a; the claim is allocated to another node"):
        driver.plan(allocation(pool="node-b"))


def test_a_missing_device_node_is_that_devices_error(driver: GpuDriver) -> None:
    (driver._paths.dev / "nvidia1").unlink()
    with pytest.raises(DeviceNotReadyError, match=r"gpu-0000-43-00-0 .*nvidia1") as missing:
        driver.plan(allocation())
    assert missing.value.retryable
    driver.plan(allocation("gpu-0000-1b-00-0"))


def configuration(*wanted: str, driver: str = DRIVER, source: str = "FromClaim") -> DeviceAllocationConfiguration:
    opaque = OpaqueDeviceConfiguration(driver=driver, parameters={"kind": "GpuConfig"})
    return DeviceAllocationConfiguration(source=source, requests=list(wanted), opaque=opaque)


@pytest.mark.parametrize(
    ("request_", "given", "text"),
    [
        ("gpu", configuration(), "request gpu: the claim has a configuration for it"),
        ("gpu", configuration("gpu", source="FromClass"), "request gpu: the class has a configuration for it"),
        ("gpu/small", configuration("gpu"), "request gpu/small: the claim has a configuration for it"),
        ("gpu/small", configuration("gpu/small"), "request gpu/small: the claim has a configuration for it"),
    ],
)
def test_a_configuration_is_refused_rather_than_ignored(driver: GpuDriver, request_: str, given: DeviceAllocationConfiguration, text: str) -> None:
    wanted = allocation()
    wanted.results[0].request = request_
    wanted.config = [given]
    with pytest.raises(UnsupportedRequestError, match=text):
        driver.plan(wanted)


@pytest.mark.parametrize("given", [configuration("nic"), configuration("gpu/big"), configuration(driver="nic.example.com")])
def test_a_configuration_of_something_else_is_none(driver: GpuDriver, given: DeviceAllocationConfiguration) -> None:
    wanted = allocation()
    wanted.config = [given]
    assert driver.plan(wanted).devices


def test_containers_are_told_what_the_slice_says_about_the_gpu(driver: GpuDriver) -> None:
    (planned,) = driver.plan(allocation()).devices
    assert planned.metadata is not None
    assert planned.metadata.attributes == driver.devices()[1].attributes
    assert {"uuid", "productName", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"} <= set(planned.metadata.attributes)


def test_a_share_is_refused_rather_than_given_the_whole_gpu(driver: GpuDriver) -> None:
    with pytest.raises(UnsupportedRequestError, match="sharing is not supported yet"):
        driver.plan(allocation(share_id="s1"))
