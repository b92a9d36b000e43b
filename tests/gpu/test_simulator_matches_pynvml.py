"""The simulator is held to the binding nvidia-ml-py: what a caller can tell apart is a bug."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pynvml
import pytest

from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator.faults import FaultFile, FaultyNvml
from dra_driver.gpu.simulator.nvml import SimulatedNvml
from dra_driver.gpu.simulator.profile import Profile

FUNCTIONS = sorted(name for name in vars(Nvml) if name.startswith("nvml"))
OF_NO_DEVICE: dict[str, list[Any]] = {"nvmlDeviceGetCount": [], "nvmlDeviceGetHandleByIndex": [0], "nvmlDeviceGetHandleByPciBusId": ["0000:1b:00.0"]}
OF_A_DEVICE = [name for name in FUNCTIONS if name.startswith("nvmlDevice") and name not in OF_NO_DEVICE]


def simulated(name: str = "h100-sxm-80gb", *, initialized: bool = True) -> SimulatedNvml:
    profile = Profile.load(name)
    nvml = SimulatedNvml(profile, profile.gpus("node-a"))
    if initialized:
        nvml.nvmlInit()
    return nvml


def shape(function: Any, *, method: bool = False) -> list[tuple[str, Any, Any]]:
    parameters = list(inspect.signature(function).parameters.values())[1 if method else 0 :]
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


def fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name, _ in struct._fields_}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_has_pynvml_s_signature(function: str) -> None:
    expected = shape(getattr(pynvml, function))
    assert shape(getattr(Nvml, function), method=True) == expected
    assert shape(getattr(simulated(), function)) == expected
    assert shape(getattr(FaultyNvml(simulated(), FaultFile(Path("/nowhere"), [])), function)) == expected


def test_the_simulator_has_no_function_that_nvml_lacks() -> None:
    assert sorted(name for name in vars(SimulatedNvml) if not name.startswith("_")) == FUNCTIONS


def test_structs_are_pynvml_s_with_the_spellings_of_hardware() -> None:
    nvml = simulated()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert isinstance(handle, pynvml.c_nvmlDevice_t)

    pci = nvml.nvmlDeviceGetPciInfo(handle)
    assert isinstance(pci, pynvml.nvmlPciInfo_t)
    assert fields(pci) == {
        "busIdLegacy": "0000:1B:00.0",
        "domain": 0,
        "bus": 0x1B,
        "device": 0,
        "pciDeviceId": 0x233010DE,
        "pciSubSystemId": 0x16C110DE,
        "busId": "00000000:1B:00.0",
    }

    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert isinstance(memory, pynvml.c_nvmlMemory_t)
    assert fields(memory) == {"total": 85520809984, "free": 85520809984, "used": 0}
    second = nvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    assert isinstance(second, pynvml.c_nvmlMemory_v2_t)
    assert second.total == 85520809984


@pytest.mark.parametrize(
    ("profile", "function", "value"),
    [
        ("h100-sxm-80gb", "nvmlDeviceGetBrand", pynvml.NVML_BRAND_NVIDIA),
        ("h100-sxm-80gb", "nvmlDeviceGetArchitecture", pynvml.NVML_DEVICE_ARCH_HOPPER),
        ("h100-sxm-80gb", "nvmlDeviceGetAddressingMode", pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM),
        ("a100-sxm-40gb", "nvmlDeviceGetArchitecture", pynvml.NVML_DEVICE_ARCH_AMPERE),
    ],
)
def test_enums_are_nvml_s_numbers(profile: str, function: str, value: int) -> None:
    nvml = simulated(profile)
    assert getattr(nvml, function)(nvml.nvmlDeviceGetHandleByIndex(0)) == value


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name != "nvmlInit"])
def test_nothing_answers_before_init(function: str) -> None:
    handle = simulated().nvmlDeviceGetHandleByIndex(0)
    arguments = OF_NO_DEVICE.get(function, [handle] if function in OF_A_DEVICE else [])
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        getattr(simulated(initialized=False), function)(*arguments)


@pytest.mark.parametrize("index", [-1, 8])
def test_an_index_that_does_not_exist_is_an_invalid_argument(index: int) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        simulated().nvmlDeviceGetHandleByIndex(index)


@pytest.mark.parametrize("spelling", ["0000:43:00.0", "00000000:43:00.0", "0000:43:00.0".upper()])
def test_a_gpu_is_found_by_its_pci_address(spelling: str) -> None:
    nvml = simulated()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(spelling)
    assert nvml.nvmlDeviceGetUUID(handle) == nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(1))


@pytest.mark.parametrize(("address", "error"), [("0000:44:00.0", pynvml.NVMLError_NotFound), ("nonsense", pynvml.NVMLError_InvalidArgument)])
def test_an_address_that_no_gpu_has(address: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        simulated().nvmlDeviceGetHandleByPciBusId(address)


@pytest.mark.parametrize("function", OF_A_DEVICE)
def test_a_null_handle_is_an_invalid_argument(function: str) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        getattr(simulated(), function)(pynvml.c_nvmlDevice_t())


def test_what_a_driver_does_not_know_is_function_not_found() -> None:
    nvml = simulated("a100-sxm-40gb")
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetAddressingMode(nvml.nvmlDeviceGetHandleByIndex(0))


def test_an_unknown_struct_version_is_a_version_mismatch() -> None:
    nvml = simulated()
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0), 0x09000001)


def test_the_simulator_needs_no_library(tmp_path: Path) -> None:
    simulated().nvmlDeviceGetCount()
    assert pynvml.nvmlLib is None
