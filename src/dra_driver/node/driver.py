"""The NVIDIA part of the node program: what an allocation of our GPUs means on this host."""

from __future__ import annotations

from dra_driver.daemon.paths import HostPaths
from dra_driver.errors import ClaimError, UnsupportedRequestError
from dra_driver.gpu import container_edits
from dra_driver.gpu.attributes import device
from dra_driver.gpu.inventory import Gpu, Inventory
from dra_driver.k8s.objects.resource import Device, DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet.driver import Driver, Plan, PlannedDevice

DRIVER = "gpu.nvidia.com"
CDI_KIND = "k8s.gpu.nvidia.com/claim"


class GpuDriver(Driver):
    """Implements `kubelet.driver.Driver` over one inventory of the node `pool`."""

    name = DRIVER
    cdi_kind = CDI_KIND

    def __init__(self, pool: str, inventory: Inventory, paths: HostPaths) -> None:
        self._pool = pool
        self._inventory = inventory
        self._paths = paths
        self._gpus = {gpu.name: gpu for gpu in inventory.gpus}

    def devices(self) -> list[Device]:
        """The pool's devices, in the order of their PCI addresses."""
        return [device(gpu) for gpu in self._inventory.gpus]

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        """Whole GPUs: their device nodes and the driver's libraries, as they are on the host now. No NVML call."""
        if allocation.config:
            raise UnsupportedRequestError(
                f"the class or the claim has a configuration (opaque, driver {DRIVER}); none is supported yet, whole GPUs need none: remove it"
            )
        planned = [(result, self._gpu(result)) for result in allocation.results]
        return Plan(
            devices=tuple(PlannedDevice(result, gpu.uuid, container_edits.gpu_edits(gpu, self._paths)) for result, gpu in planned),
            common=container_edits.common_edits(self._paths, self._inventory.driver_version),
        )

    def _gpu(self, result: DeviceRequestAllocationResult) -> Gpu:
        if result.share_id:
            raise UnsupportedRequestError(f"request {result.request}: device {result.device} is allocated as a share; sharing is not supported yet")
        if result.pool != self._pool:
            raise ClaimError(
                f"request {result.request}: device {result.device} is in pool {result.pool}, this node has pool {self._pool}; "
                "the claim is allocated to another node"
            )
        gpu = self._gpus.get(result.device)
        if gpu is None:
            known = ", ".join(self._gpus) or "none"
            raise ClaimError(f"request {result.request}: pool {self._pool} has no device {result.device}; it has {known}")
        return gpu
