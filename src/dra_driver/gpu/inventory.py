"""One immutable snapshot of this node's GPUs.

A GPU that cannot be read is left out with its problem, and the others stay. What a GPU or driver does not support is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import pynvml

from dra_driver.daemon.paths import HostPaths
from dra_driver.errors import DeviceError, HostError
from dra_driver.gpu import naming, pci
from dra_driver.gpu.nvml import Nvml, text

T = TypeVar("T")

UNKNOWN = "Unknown"

# Numbers of nvml.h: the oldest binding that we accept lacks the newest names. A later number is "Unknown" and no error.
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}

_UNSUPPORTED = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_ArgumentVersionMismatch,
    pynvml.NVMLError_NoPermission,
)


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A whole GPU. Identity is `uuid`; `pci_bus_id` (dddd:bb:dd.f) names it; `minor` is N of /dev/nvidiaN until the next boot.

    `memory` is bytes, None where the GPU has none of its own. `driver_version` is as the driver writes it; `cuda_driver_version` is (major, minor).
    """

    uuid: str
    pci_bus_id: str
    minor: int
    product_name: str | None
    brand: str | None
    architecture: str | None
    compute_capability: tuple[int, int] | None
    memory: int | None
    driver_version: str
    cuda_driver_version: tuple[int, int] | None
    pcie_root: str | None
    numa_node: int | None
    addressing_mode: str | None

    @property
    def name(self) -> str:
        """The device name in slices and claims."""
        return naming.gpu_name(self.pci_bus_id)


class GpuProblem(msgspec.Struct, frozen=True):
    """A GPU that NVML counts but that is not in the inventory, with what is known of its identity. `broken`: it could not be read."""

    index: int
    pci_bus_id: str | None
    uuid: str | None
    reason: str
    broken: bool = True

    def __str__(self) -> str:
        return f"GPU {self.uuid or self.index} at PCI {self.pci_bus_id or 'unknown'}: {self.reason}"


class Inventory(msgspec.Struct, frozen=True):
    """GPUs in the order of their PCI addresses, and those that could not be read."""

    driver_version: str
    gpus: tuple[Gpu, ...]
    problems: tuple[GpuProblem, ...] = ()


def discover(nvml: Nvml, paths: HostPaths) -> Inventory:
    """Reads every GPU from an initialized NVML and its place from sysfs. HostError when NVML does not even count."""
    try:
        count = nvml.nvmlDeviceGetCount()
        driver_version = text(nvml.nvmlSystemGetDriverVersion())
        cuda = _optional(nvml.nvmlSystemGetCudaDriverVersion)
    except pynvml.NVMLError as error:
        raise HostError(f"NVML cannot list the GPUs: {error}; see the kernel log for lines of NVRM") from error
    cuda_version = (cuda // 1000, cuda % 1000 // 10) if cuda else None

    found = [_read(nvml, paths, index, driver_version, cuda_version) for index in range(count)]
    gpus = sorted((gpu for gpu in found if isinstance(gpu, Gpu)), key=lambda gpu: gpu.pci_bus_id)
    return Inventory(driver_version, tuple(gpus), tuple(problem for problem in found if isinstance(problem, GpuProblem)))


def _read(nvml: Nvml, paths: HostPaths, index: int, driver_version: str, cuda_driver_version: tuple[int, int] | None) -> Gpu | GpuProblem:
    pci_bus_id = uuid = None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        pci_bus_id = pci.canonical(text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        uuid = text(nvml.nvmlDeviceGetUUID(handle))
        minor = nvml.nvmlDeviceGetMinorNumber(handle)
        mig_mode = _optional(lambda: nvml.nvmlDeviceGetMigMode(handle))
        name = _optional(lambda: text(nvml.nvmlDeviceGetName(handle)))
        brand = _optional(lambda: nvml.nvmlDeviceGetBrand(handle))
        architecture = _optional(lambda: nvml.nvmlDeviceGetArchitecture(handle))
        capability = _optional(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
        memory = _optional(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
        mode = _optional(lambda: nvml.nvmlDeviceGetAddressingMode(handle))
    except (pynvml.NVMLError, DeviceError) as error:
        return GpuProblem(index, pci_bus_id, uuid, str(error))
    if mig_mode is not None and mig_mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        # CUDA cannot use such a GPU as a whole, only the MIG devices on it.
        reason = "is in MIG mode, and MIG devices are not supported yet; switch it off with nvidia-smi -mig 0"
        return GpuProblem(index, pci_bus_id, uuid, reason, broken=False)
    return Gpu(
        uuid=uuid,
        pci_bus_id=pci_bus_id,
        minor=minor,
        product_name=name,
        brand=None if brand is None else BRANDS.get(brand, UNKNOWN),
        architecture=None if architecture is None else ARCHITECTURES.get(architecture, UNKNOWN),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        memory=memory or None,
        driver_version=driver_version,
        cuda_driver_version=cuda_driver_version,
        pcie_root=pci.pcie_root(paths.sys, pci_bus_id),
        numa_node=pci.numa_node(paths.sys, pci_bus_id),
        addressing_mode=None if mode is None else ADDRESSING_MODES.get(mode),
    )


def _optional(read: Callable[[], T]) -> T | None:
    """What NVML says, or None where this GPU, driver or process cannot have it; any other error means that the GPU is broken."""
    try:
        return read()
    except _UNSUPPORTED:
        return None
