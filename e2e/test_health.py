"""A GPU that breaks and recovers, as the pod that has it, the scheduler and the admin see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.gpu_nodes import DRIVER
from e2e.kube import Kube, Object, claim, claim_ref, pod, template
from e2e.process_nodes import ProcessGpuNode
from e2e.test_one_gpu import claim_of


class BreakableNode:
    """A node whose GPUs a file breaks."""

    def __init__(self, program: ProcessGpuNode, kube: Kube) -> None:
        self.program, self.kube = program, kube
        self.file = program.node.root / "faults.toml"

    def break_gpus(self, *addresses: str) -> None:
        """These GPUs, by PCI address, are lost from now on, the others are well."""
        temporary = self.file.with_suffix(".new")
        temporary.write_text("".join(f'[[faults]]\ngpu = "{address}"\nerror = "GPU_IS_LOST"\n' for address in addresses))
        temporary.replace(self.file)

    def device(self, name: str) -> Object:
        return next(one for one in self.program.devices() if one["name"] == name)

    def taints(self, name: str) -> list[Object]:
        return self.device(name).get("taints") or []

    def wait_tainted(self, name: str) -> Object:
        """Until the device has its taint; returns it."""
        (taint,) = self.kube.wait(f"{name} is tainted", lambda: self.taints(name))
        return taint

    def wait_untainted(self, name: str) -> None:
        self.kube.wait(f"{name} is not tainted", lambda: not self.taints(name))


@pytest.fixture
def node(process_nodes: dict[str, ProcessGpuNode], kube: Kube) -> Iterator[BreakableNode]:
    program = process_nodes["node-a"]
    one = BreakableNode(program, kube)
    program.flags = (f"--simulate-faults={one.file}",)
    program.restart()
    program.wait_registered()
    yield one
    one.file.unlink(missing_ok=True)
    program.flags = ()
    program.restart()
    program.wait_registered()
    for device in program.devices():
        one.wait_untainted(device["name"])


def address(device: Object) -> str:
    return str(device["attributes"]["resource.kubernetes.io/pciBusID"]["string"])


def health(kube: Kube, namespace: str, name: str) -> list[dict[str, Any]]:
    """What the status of the pod's container says of its devices."""
    found = kube.get("Pod", name, namespace)
    assert found is not None
    return [
        {"name": status["name"], **resource}
        for container in found["status"]["containerStatuses"]
        for status in container.get("allocatedResourcesStatus") or []
        for resource in status["resources"]
    ]


def wait_health(kube: Kube, namespace: str, name: str, wanted: str) -> dict[str, Any]:
    def shown() -> dict[str, Any] | None:
        return next((one for one in health(kube, namespace, name) if one["health"] == wanted), None)

    try:
        return kube.wait(f"the GPU of pod {name} is {wanted}", shown)
    except AssertionError as error:
        raise AssertionError(f"{error}; shown is {health(kube, namespace, name)}") from error


def test_the_pod_shows_what_happened_to_its_gpu_and_the_device_is_tainted_meanwhile(node: BreakableNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    kube.create(pod(namespace, "user", [claim_ref("gpu", template="one-gpu")], node=node.program.name))
    kube.wait_running(namespace, "user")
    held = claim_of(kube, namespace, "user")
    (result,) = held["status"]["allocation"]["devices"]["results"]
    before = node.device(result["device"])
    well = wait_health(kube, namespace, "user", "Healthy")
    assert well["name"] == "claim:gpu"
    assert well["resourceID"].startswith(f"k8s.gpu.nvidia.com/claim={held['metadata']['uid']}")

    node.break_gpus(address(before))
    ill = wait_health(kube, namespace, "user", "Unhealthy")
    assert ill["resourceID"] == well["resourceID"]
    assert ill["message"] == "NVML: GPU is lost: the GPU has fallen off the bus; drain the node and reboot it"
    taint = node.wait_tainted(result["device"])
    assert (taint["key"], taint["effect"]) == (f"{DRIVER}/gpu-lost", "NoSchedule")
    assert node.device(result["device"])["attributes"] == before["attributes"]
    assert [one["name"] for one in node.program.devices() if one.get("taints")] == [result["device"]]

    node.program.restart()
    node.program.wait_registered()
    wait_health(kube, namespace, "user", "Unhealthy")
    assert node.taints(result["device"]) == [taint], "a restart neither lifts the taint nor gives it another time"
    node.program.node.restart_kubelet()
    wait_health(kube, namespace, "user", "Unhealthy")

    node.break_gpus()
    wait_health(kube, namespace, "user", "Healthy")
    node.wait_untainted(result["device"])
    assert kube.phase(namespace, "user") == "Running"


def test_no_pod_is_scheduled_to_a_broken_gpu_until_it_has_recovered(node: BreakableNode, kube: Kube, namespace: str) -> None:
    device = node.program.devices()[-1]
    node.break_gpus(address(device))
    node.wait_tainted(device["name"])
    uuid = device["attributes"]["uuid"]["string"]
    kube.create(claim(namespace, "this-one", selectors=[f"device.attributes['gpu.nvidia.com'].uuid == '{uuid}'"]))
    kube.create(pod(namespace, "waits", [claim_ref("gpu", claim="this-one")]))
    kube.wait("the scheduler has tried", lambda: any(one["reason"] == "FailedScheduling" for one in kube.events(namespace, "waits")))
    assert kube.phase(namespace, "waits") == "Pending"
    node.break_gpus()
    kube.wait_running(namespace, "waits")
