"""The NVIDIA part of the node program: what an allocation of our GPUs means on this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dra_driver.daemon.paths import HostPaths
from dra_driver.errors import ClaimError, UnsupportedRequestError
from dra_driver.gpu import container_edits, driver_files
from dra_driver.gpu.attributes import device
from dra_driver.gpu.inventory import Gpu, Inventory
from dra_driver.k8s.objects.resource import Device, DeviceAllocationResult, DeviceRequestAllocationResult, DeviceTaint
from dra_driver.kubelet import requests
from dra_driver.kubelet.driver import DeviceMetadata, Driver, Plan, PlannedDevice

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
        self._metadata = {gpu.name: DeviceMetadata(device(gpu).attributes) for gpu in inventory.gpus}

    def devices(self, taints: Callable[[str, str], Sequence[DeviceTaint]] = lambda _pool, _device: ()) -> list[Device]:
        """The pool's devices, in the order of their PCI addresses, with the taints that they have now.

        An unhealthy GPU stays, with the attributes that it had: a selector that reads a missing name ends the scheduling of its pod everywhere.
        """
        return [msgspec.structs.replace(device(gpu), taints=list(taints(self._pool, gpu.name))) for gpu in self._inventory.gpus]

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        """Whole GPUs: their device nodes and the driver's libraries, as they are on the host now. No NVML call."""
        devices = []
        for result in allocation.results:
            gpu = self._gpu(result)
            if given := requests.configurations(DRIVER, result.request, allocation.config):
                where = "class" if given[-1].source == requests.FROM_CLASS else "claim"
                raise UnsupportedRequestError(
                    f"request {result.request}: the {where} has a configuration for it (opaque, driver {DRIVER}); none is supported yet, whole GPUs "
                    "need none: remove it"
                )
            devices.append(PlannedDevice(result, gpu.uuid, container_edits.gpu_edits(gpu, self._paths), self._metadata[gpu.name]))
        return Plan(tuple(devices), container_edits.common_edits(self._paths, self._inventory.driver_version))

    def host_stamp(self) -> object:
        """Where device nodes are looked for, and the directories of the driver."""
        return self._paths.dev, driver_files.stamp(self._paths.driver_root)

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
