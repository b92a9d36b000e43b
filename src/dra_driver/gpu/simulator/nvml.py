"""An NVML without a GPU, at the level of the module pynvml: its functions, structs and errors, over a profile.

What a profile lacks is answered as such hardware answers: NOT_SUPPORTED, or FUNCTION_NOT_FOUND where its driver is too old.
"""
# ruff: noqa: N802  (the names are NVML's)

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from dra_driver.errors import DeviceError
from dra_driver.gpu import pci
from dra_driver.gpu.simulator.profile import Profile, SimulatedGpu

_MIB = 1024 * 1024
_NVIDIA = 0x10DE


class SimulatedNvml:
    """The GPUs of one node; see `dra_driver.gpu.nvml.Nvml` for the functions. Nothing answers before nvmlInit."""

    def __init__(self, profile: Profile, gpus: tuple[SimulatedGpu, ...]) -> None:
        self._profile = profile
        self._gpus = gpus
        self._initialized = False

    def nvmlInit(self) -> None:
        """Before it nothing else answers."""
        self._initialized = True

    def nvmlSystemGetDriverVersion(self) -> str:
        """As the profile says."""
        self._require_initialized()
        return self._profile.driver_version

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        """12.9 is 12090."""
        self._require_initialized()
        major, minor = self._profile.cuda_version.split(".")
        return int(major) * 1000 + int(minor) * 10

    def nvmlDeviceGetCount(self) -> int:
        """As many as the node has."""
        self._require_initialized()
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """A pointer to nothing, as opaque as NVML's."""
        self._require_initialized()
        if not 0 <= index < len(self._gpus):
            raise pynvml.NVMLError_InvalidArgument
        return ctypes.cast(index + 1, pynvml.c_nvmlDevice_t)

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> Any:  # noqa: N803
        """In any spelling of the address."""
        self._require_initialized()
        try:
            address = pci.canonical(pciBusId)
        except DeviceError as error:
            raise pynvml.NVMLError_InvalidArgument from error
        for index, gpu in enumerate(self._gpus):
            if gpu.slot.pci == address:
                return self.nvmlDeviceGetHandleByIndex(index)
        raise pynvml.NVMLError_NotFound

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        """Of this node's GPU."""
        return self._gpu(handle).uuid

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        """Both spellings of the address, in capitals as NVML writes them."""
        address = self._gpu(handle).slot.pci.upper()
        domain, bus, rest = address.split(":")
        return pynvml.nvmlPciInfo_t(
            busIdLegacy=address.encode(),
            domain=int(domain, 16),
            bus=int(bus, 16),
            device=int(rest.split(".")[0], 16),
            pciDeviceId=self._profile.pci_device_id << 16 | _NVIDIA,
            pciSubSystemId=self._profile.pci_subsystem_id << 16 | _NVIDIA,
            busId=f"{domain:0>8}:{bus}:{rest}".encode(),
        )

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        """Of the slot."""
        return self._gpu(handle).slot.minor

    def nvmlDeviceGetName(self, handle: Any) -> str:
        """As the profile says."""
        self._gpu(handle)
        return self._profile.product_name

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:
        """Off."""
        self._gpu(device)
        return [pynvml.NVML_DEVICE_MIG_DISABLE, pynvml.NVML_DEVICE_MIG_DISABLE]

    def nvmlDeviceGetBrand(self, handle: Any) -> int:
        """As the profile says."""
        self._gpu(handle)
        return _constant(f"NVML_BRAND_{self._profile.brand}")

    def nvmlDeviceGetArchitecture(self, device: Any) -> int:
        """As the profile says."""
        self._gpu(device)
        return _constant(f"NVML_DEVICE_ARCH_{self._profile.architecture}")

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        """As the profile says."""
        self._gpu(handle)
        return self._profile.compute_capability

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        """An idle GPU: all of it is free."""
        self._gpu(handle)
        if self._profile.memory_mib is None:
            raise pynvml.NVMLError_NotSupported
        total = self._profile.memory_mib * _MIB
        if not version:
            return pynvml.c_nvmlMemory_t(total=total, free=total)
        if version != pynvml.nvmlMemory_v2:
            raise pynvml.NVMLError_ArgumentVersionMismatch
        return pynvml.c_nvmlMemory_v2_t(version=version, total=total, free=total)

    def nvmlDeviceGetAddressingMode(self, device: Any) -> int:
        """As the profile says."""
        self._gpu(device)
        if self._profile.addressing_mode is None:
            raise pynvml.NVMLError_FunctionNotFound
        return _constant(f"NVML_DEVICE_ADDRESSING_MODE_{self._profile.addressing_mode}")

    def _require_initialized(self) -> None:
        if not self._initialized:
            raise pynvml.NVMLError_Uninitialized

    def _gpu(self, handle: Any) -> SimulatedGpu:
        self._require_initialized()
        number = ctypes.cast(handle, ctypes.c_void_p).value or 0
        if not 1 <= number <= len(self._gpus):
            raise pynvml.NVMLError_InvalidArgument
        return self._gpus[number - 1]


def _constant(name: str) -> int:
    return int(getattr(pynvml, name))
