"""Discovery: one snapshot, in which a broken GPU costs only itself and a missing reading is absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from msgspec.structs import replace

from dra_driver.errors import HostError
from dra_driver.gpu.inventory import ARCHITECTURES, BRANDS, Inventory, discover
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator import simulate
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths

Fail = Callable[..., None]
Node = tuple[Nvml, SimulatedHostPaths]


def test_a_gpu_is_read_with_its_place(inventory: Inventory) -> None:
    gpu = inventory.gpus[1]
    assert inventory.driver_version == gpu.driver_version == "575.57.08"
    assert (gpu.name, gpu.pci_bus_id, gpu.minor) == ("gpu-0000-43-00-0", "0000:43:00.0", 1)
    assert (gpu.product_name, gpu.brand, gpu.architecture, gpu.addressing_mode) == ("NVIDIA H100 80GB HBM3", "Nvidia", "Hopper", "HMM")
    assert (gpu.compute_capability, gpu.cuda_driver_version, gpu.memory) == ((9, 0), (12, 9), 81559 * 1024**2)
    assert (gpu.pcie_root, gpu.numa_node) == ("pci0000:3d", 0)
    assert inventory.problems == ()


def test_a_snapshot_cannot_be_changed(inventory: Inventory) -> None:
    with pytest.raises(AttributeError):
        inventory.gpus[0].minor = 5  # type: ignore[misc]


def test_gpus_come_in_pci_order_whatever_nvml_s_order(h100: Node, inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    by_index = nvml.nvmlDeviceGetHandleByIndex
    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByIndex", lambda index: by_index(1 - index))
    assert discover(nvml, paths) == inventory


def in_bytes(answer: Callable[..., str]) -> Callable[..., bytes]:
    return lambda *args: answer(*args).encode()


def test_bytes_from_the_binding_are_the_same_as_strings(h100: Node, inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlSystemGetDriverVersion"):
        monkeypatch.setattr(nvml, function, in_bytes(getattr(nvml, function)))
    assert discover(nvml, paths) == inventory


@pytest.mark.parametrize(
    ("function", "known"),
    [
        ("nvmlDeviceGetHandleByIndex", "GPU 0 at PCI unknown: GPU is lost"),
        ("nvmlDeviceGetPciInfo", "GPU 0 at PCI unknown: GPU is lost"),
        ("nvmlDeviceGetUUID", "GPU 0 at PCI 0000:1b:00.0: GPU is lost"),
        ("nvmlDeviceGetMinorNumber", "GPU GPU-1fe79b83-0f95-5b27-a14c-f17ff7285d2a at PCI 0000:1b:00.0: GPU is lost"),
        ("nvmlDeviceGetMemoryInfo", "GPU GPU-1fe79b83-0f95-5b27-a14c-f17ff7285d2a at PCI 0000:1b:00.0: GPU is lost"),
    ],
)
def test_a_lost_gpu_is_left_out_with_its_problem_and_the_others_stay(h100: Node, inventory: Inventory, fail: Fail, function: str, known: str) -> None:
    nvml, paths = h100
    fail(nvml, function, pynvml.NVMLError_GpuIsLost(), index=0)
    found = discover(nvml, paths)
    assert found.gpus == inventory.gpus[1:]
    assert [str(problem) for problem in found.problems] == [known]


def test_a_gpu_in_mig_mode_is_no_whole_gpu(h100: Node, inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    first = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", lambda device: [int(nvml.nvmlDeviceGetUUID(device) == first), 0])
    found = discover(nvml, paths)
    assert found.gpus == inventory.gpus[1:]
    assert "is in MIG mode" in found.problems[0].reason


def test_a_gpu_with_a_malformed_address_is_left_out(h100: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    monkeypatch.setattr(nvml, "nvmlDeviceGetPciInfo", lambda _: pynvml.nvmlPciInfo_t(busId=b"nonsense"))
    found = discover(nvml, paths)
    assert found.gpus == ()
    assert "PCI address 'nonsense' must look like" in found.problems[1].reason


@pytest.mark.parametrize("error", [pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission])
@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetName", "product_name"),
        ("nvmlDeviceGetBrand", "brand"),
        ("nvmlDeviceGetArchitecture", "architecture"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetMemoryInfo", "memory"),
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlSystemGetCudaDriverVersion", "cuda_driver_version"),
    ],
)
def test_what_is_not_supported_is_absent_and_everything_else_is_there(
    h100: Node, fail: Fail, function: str, field: str, error: type[Exception]
) -> None:
    nvml, paths = h100
    inventory = discover(nvml, paths)
    fail(nvml, function, error())
    found = discover(nvml, paths)
    assert found.gpus == tuple(replace(gpu, **{field: None}) for gpu in inventory.gpus)
    assert found.problems == ()


@pytest.mark.parametrize(("function", "field"), [("nvmlDeviceGetArchitecture", "architecture"), ("nvmlDeviceGetBrand", "brand")])
@pytest.mark.parametrize("number", [0, 77, 0xFFFFFFFF])
def test_an_enum_of_the_future_is_unknown(h100: Node, monkeypatch: pytest.MonkeyPatch, function: str, field: str, number: int) -> None:
    nvml, paths = h100
    monkeypatch.setattr(nvml, function, lambda _: number)
    assert {getattr(gpu, field) for gpu in discover(nvml, paths).gpus} == {"Unknown"}


def test_an_addressing_mode_of_the_future_is_absent(h100: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    monkeypatch.setattr(nvml, "nvmlDeviceGetAddressingMode", lambda _: 9)
    assert discover(nvml, paths).gpus[0].addressing_mode is None


def test_a_memory_of_zero_is_absent(h100: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, paths = h100
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda _: pynvml.c_nvmlMemory_t())
    assert discover(nvml, paths).gpus[0].memory is None


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"])
def test_an_nvml_that_does_not_answer_is_the_host_s_problem(h100: Node, fail: Fail, function: str) -> None:
    nvml, paths = h100
    fail(nvml, function, pynvml.NVMLError_Unknown())
    with pytest.raises(HostError, match="NVML cannot list the GPUs: Unknown Error"):
        discover(nvml, paths)


def test_a_node_without_gpus_has_an_empty_inventory(tmp_path: Path) -> None:
    nvml, paths = simulate("h100-sxm-80gb", tmp_path / "driver", gpus=0, seed="node-a")
    nvml.nvmlInit()
    assert discover(nvml, paths) == Inventory("575.57.08", ())


@pytest.mark.parametrize(("prefix", "table"), [("NVML_DEVICE_ARCH_", ARCHITECTURES), ("NVML_BRAND_", BRANDS)], ids=["architectures", "brands"])
def test_the_names_stand_at_nvml_s_numbers(prefix: str, table: dict[int, str]) -> None:
    spelled = {"Ada Lovelace": "ADA", "NvidiaCloudGaming": "NVIDIA_CLOUD_GAMING"}
    for number, name in table.items():
        constants = {constant.removeprefix(prefix) for constant in dir(pynvml) if constant.startswith(prefix) and getattr(pynvml, constant) == number}
        assert {spelled.get(name, name.upper()), name.upper()} & ({constant.replace("_", "") for constant in constants} | constants)
