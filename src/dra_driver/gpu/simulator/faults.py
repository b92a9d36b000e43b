"""Faults of simulated GPUs, from a file that may appear, change and go at any time. A file without faults, or none, is a healthy node::

[[faults]]
gpu = "0000:43:00.0"        # PCI address
error = "GPU_IS_LOST"       # ends the name of an NVML_ERROR_… constant

[[faults]]
gpu = "0000:1b:00.0"
call = "nvmlDeviceGetMemoryInfo"   # without it every call about the GPU
hangs = true                # until the file says otherwise
"""

from __future__ import annotations

import functools
import logging
import os
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
from pydantic import BaseModel, ConfigDict, ValidationError

from dra_driver.errors import DeviceError, SettingsError
from dra_driver.gpu import pci
from dra_driver.gpu.nvml import Nvml, text

log = logging.getLogger(__name__)

_STEP = 0.02  # seconds between two looks of a call that hangs
_HANDLES = {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId"}


class Fault(BaseModel):
    """What is wrong with one GPU: calls about it fail with `error`, or hang."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    gpu: str
    call: str = ""
    error: str = ""
    hangs: bool = False


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    faults: list[Fault] = []


class FaultFile:
    """The faults as the file has them now. SettingsError when it is malformed at first; later that is logged and what it said before holds."""

    def __init__(self, path: Path, gpus: Sequence[str]) -> None:
        self._path = path
        self._gpus = gpus
        self._state = self._stat()
        self._faults = self._read()

    def find(self, gpu: str, call: str) -> Fault | None:
        """The first fault that a call about the GPU with this PCI address meets."""
        state = self._stat()
        if state != self._state:
            self._state = state
            try:
                self._faults = self._read()
            except SettingsError as error:
                log.error("faults stay as they were", extra={"error": str(error)})  # noqa: TRY400  the text says it all
        return next((fault for fault in self._faults if fault.gpu == gpu and fault.call in {"", call}), None)

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  Path.stat costs twice as much, and this is asked at every call
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> list[Fault]:
        try:
            content = _Content.model_validate(tomllib.loads(self._path.read_text()))
            return [self._checked(fault) for fault in content.faults]
        except FileNotFoundError:
            return []
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}, found {one['input']!r}" for one in error.errors()]
            raise SettingsError(f"file of simulated faults {self._path}: {'; '.join(problems)}") from error
        except (OSError, ValueError, DeviceError) as error:  # TOMLDecodeError is a ValueError
            raise SettingsError(f"file of simulated faults {self._path}: {error}") from error

    def _checked(self, fault: Fault) -> Fault:
        gpu = pci.canonical(fault.gpu)
        if gpu not in self._gpus:
            raise ValueError(f"gpu = {fault.gpu!r}: there is no such GPU, there are {', '.join(self._gpus) or 'none'}")
        if fault.call and not hasattr(Nvml, fault.call):
            raise ValueError(f"call = {fault.call!r}: it must be a function of NVML that the driver calls")
        if fault.hangs == bool(fault.error):
            raise ValueError(f"gpu = {fault.gpu!r}: need either error or hangs")
        if fault.error and not hasattr(pynvml, f"NVML_ERROR_{fault.error}"):
            raise ValueError(f"error = {fault.error!r}: NVML has no NVML_ERROR_{fault.error}")
        return fault.model_copy(update={"gpu": gpu})


class FaultyNvml:
    """An NVML whose calls about a GPU meet the faults of a file; see `dra_driver.gpu.nvml.Nvml` for the functions."""

    def __init__(self, nvml: Nvml, faults: FaultFile) -> None:
        self._nvml = nvml
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._nvml, name)
        return self._faulty(name, function) if name.startswith("nvmlDevice") and name != "nvmlDeviceGetCount" else function

    def _faulty(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            answer = function(*arguments, **named)
            handle = answer if name in _HANDLES else arguments[0]
            gpu = pci.canonical(text(self._nvml.nvmlDeviceGetPciInfo(handle).busId))
            while fault := self._faults.find(gpu, name):
                if fault.error:
                    raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{fault.error}"))
                time.sleep(_STEP)
            return answer

        return call
