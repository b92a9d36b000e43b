"""An imaginary driver with devices of its own, and claims for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dra_driver.errors import ClaimError, HostError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from dra_driver.k8s.objects.resource import DeviceClaim as DeviceClaimStruct
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode
from dra_driver.kubelet.driver import DeviceMetadata, Driver, HostChange, Plan, PlannedDevice
from dra_driver.kubelet.journal import ClaimKey

DRIVER, NODE = "toy.example.com", "node-a"


class ToyDriver(Driver):
    """Devices toy-0 to toy-7. `broken` devices raise an error of their own, `bug` raises what no driver should.

    `telling` devices have metadata. `wants` gives settings to devices; the host's settings are files in `settings_directory`, which has what a fresh
    boot has when they are missing.
    """

    name = DRIVER
    cdi_kind = "k8s.toy.example.com/claim"

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.bug = ""
        self.node_path = "/dev/{}"
        self.generation = "TOY"
        self.telling: set[str] = set()
        self.wants: dict[str, list[HostChange]] = {}
        self.settings_directory = Path("/nonexistent")
        self.stuck: set[str] = set()

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        planned = []
        for result in allocation.results:
            if result.device == self.bug:
                raise ZeroDivisionError("a bug")
            if result.pool != NODE or not result.device.startswith("toy-"):
                raise ClaimError(f"unknown device {result.pool}/{result.device}")
            if result.device in self.broken:
                raise HostError(f"device node of {result.device} is missing")
            edits = ContainerEdits(device_nodes=(DeviceNode(self.node_path.format(result.device)),))
            metadata = DeviceMetadata({"color": DeviceAttribute(string="red")}) if result.device in self.telling else None
            planned.append(PlannedDevice(result, f"{self.generation}-{result.device}", edits, metadata))
        changes = tuple(change for device in planned for change in self.wants.get(device.result.device, ()))
        return Plan(tuple(planned), ContainerEdits(env=("TOY=yes",)), changes)

    def read_setting(self, subject: str) -> str:
        try:
            return (self.settings_directory / subject).read_text()
        except FileNotFoundError:
            return "default"

    def apply_setting(self, change: HostChange) -> None:
        if change.subject in self.stuck:
            raise HostError(f"setting {change.subject} is stuck")
        (self.settings_directory / change.subject).write_text(change.value)


def result(device: str, request: str = "gpu", *, driver: str = DRIVER, pool: str = NODE, **more: object) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(request=request, driver=driver, pool=pool, device=device, **more)  # type: ignore[arg-type]


def allocated(
    client: Client,
    name: str,
    *results: DeviceRequestAllocationResult,
    config: Sequence[DeviceAllocationConfiguration] = (),
    reserved_for: Sequence[ResourceClaimConsumerReference] = (),
) -> ClaimKey:
    """A claim in the API with this allocation; none without results."""
    request = DeviceRequest(name="gpu", exactly=ExactDeviceRequest(device_class_name="toy", count=1, allocation_mode="ExactCount"))
    claim = ResourceClaim(metadata=ObjectMeta(name=name, namespace="default"), spec=ResourceClaimSpec(devices=DeviceClaimStruct(requests=[request])))
    stored = client.create(RESOURCE_CLAIMS, claim)
    if results:
        allocation = AllocationResult(devices=DeviceAllocationResult(results=list(results), config=list(config)))
        stored.status = ResourceClaimStatus(allocation=allocation, reserved_for=list(reserved_for))
        stored = client.replace(RESOURCE_CLAIMS, stored, subresource="status")
    return ClaimKey("default", name, stored.metadata.uid)
