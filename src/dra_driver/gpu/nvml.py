"""NVML, NVIDIA's management library, as far as we call it.

`Nvml` lists functions of the module `pynvml` (package nvidia-ml-py) under their own names and signatures: the module itself is the real
implementation, `gpu.simulator` the other one. Structs, constants and the NVMLError classes are pynvml's in both cases; they need no library.
"""
# ruff: noqa: N802  (the names are NVML's)

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Protocol

import pynvml

from dra_driver.errors import HostError
from dra_driver.gpu import driver_files

LIBRARY = "libnvidia-ml.so.1"


class Nvml(Protocol):
    """The functions of pynvml that we call. A handle is opaque; every function raises pynvml.NVMLError."""

    def nvmlInit(self) -> None:
        """To be called before any other. Nothing undoes it: NVML goes with the process, since a call that hangs could not be waited for."""

    def nvmlSystemGetDriverVersion(self) -> str:
        """Such as 575.57.08."""

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        """1000 * major + 10 * minor."""

    def nvmlDeviceGetCount(self) -> int:
        """GPUs, lost ones included."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """The index may change with every boot."""

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> Any:  # noqa: N803
        """As dddd:bb:dd.f. The only way that other GPUs do not matter for: by UUID it fails as soon as any GPU is lost."""

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        """GPU-<uuid>: the identity."""

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        """pynvml.nvmlPciInfo_t; the domain of `busId` has eight digits."""

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        """N of /dev/nvidiaN; neither the index nor in PCI order."""

    def nvmlDeviceGetName(self, handle: Any) -> str:
        """The product's name."""

    def nvmlDeviceGetBrand(self, handle: Any) -> int:
        """NVML_BRAND_*."""

    def nvmlDeviceGetArchitecture(self, device: Any) -> int:
        """NVML_DEVICE_ARCH_*."""

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        """Major, minor."""

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        """pynvml.c_nvmlMemory_t in bytes; not supported where GPU and CPU share the memory."""

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:
        """Current and pending mode, NVML_DEVICE_MIG_*; not supported by GPUs without MIG."""

    def nvmlDeviceGetAddressingMode(self, device: Any) -> int:
        """NVML_DEVICE_ADDRESSING_MODE_*; unknown to older drivers."""


def load(driver_root: Path) -> Nvml:
    """Maps the library below `driver_root` and returns pynvml bound to it.

    HostError while it is missing or unreadable: the driver may still be installing, so the same call may succeed later. A library stays mapped
    until the process ends; asking for another one is a HostError too.
    """
    path = str(driver_files.library_directory(driver_root) / LIBRARY)
    # pynvml opens a fixed name through the loader's search path, but not if its handle is set already.
    with pynvml.libLoadLock:
        mapped = pynvml.nvmlLib
        if mapped is None:
            try:
                pynvml.nvmlLib = ctypes.CDLL(path)
            except OSError as error:
                raise HostError(f"NVML library {path}: {error}; is it for this processor and C library?") from error
        elif (other := mapped._name) != path:  # noqa: SLF001  (ctypes has no other name for it)
            raise HostError(f"NVML library {path}: this process has mapped {other} and cannot replace it; restart it")
    nvml: Nvml = pynvml
    return nvml


def initialize(nvml: Nvml) -> None:
    """nvmlInit; HostError with what to do when the driver does not answer."""
    try:
        nvml.nvmlInit()
    except pynvml.NVMLError as error:
        advice = {
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the kernel module (modprobe nvidia) on a node that has a GPU",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was replaced under a loaded kernel module: reload the module or reboot",
            pynvml.NVML_ERROR_NO_PERMISSION: "the process may not open /dev/nvidiactl: run it as root with the GPU's devices",
        }.get(error.value, "see the kernel log for lines of NVRM")
        raise HostError(f"NVML does not start: {error}; {advice}") from error


def text(value: str | bytes) -> str:
    """A string of NVML: bytes or str, by binding and struct."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
