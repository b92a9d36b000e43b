"""A file breaks simulated GPUs, and mends them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from dra_driver.errors import SettingsError
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator import simulate

FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"
LOST = f'[[faults]]\ngpu = "{SECOND}"\nerror = "GPU_IS_LOST"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faults.toml"


def node(file: Path) -> Nvml:
    nvml, _ = simulate("h100-sxm-80gb", file.parent / "root", gpus=2, seed="node-a", real_nodes=False, faults=file)
    nvml.nvmlInit()
    return nvml


def write(file: Path, text: str) -> None:
    temporary = file.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(file)


def test_one_gpu_is_lost_for_every_call_and_comes_back(file: Path) -> None:
    nvml = node(file)
    first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    write(file, LOST)
    calls: list[Callable[[], Any]] = [
        lambda: nvml.nvmlDeviceGetHandleByIndex(1),
        lambda: nvml.nvmlDeviceGetHandleByPciBusId(SECOND),
        lambda: nvml.nvmlDeviceGetUUID(second),
        lambda: nvml.nvmlDeviceGetMemoryInfo(second),
    ]
    for call in calls:
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call()
    assert nvml.nvmlDeviceGetCount() == 2
    assert nvml.nvmlDeviceGetUUID(first)
    write(file, "")
    for call in calls:
        call()
    file.unlink()
    for call in calls:
        call()


def test_one_call_of_one_gpu_hangs_until_the_file_says_otherwise(file: Path) -> None:
    write(file, f'[[faults]]\ngpu = "{SECOND.upper()}"\ncall = "nvmlDeviceGetMemoryInfo"\nhangs = true\n')
    nvml = node(file)
    second = nvml.nvmlDeviceGetHandleByIndex(1)
    answers: queue.Queue[object] = queue.Queue()
    thread = threading.Thread(target=lambda: answers.put(nvml.nvmlDeviceGetMemoryInfo(second)))
    thread.start()
    assert nvml.nvmlDeviceGetUUID(second)
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    assert answers.empty()
    file.unlink()
    assert answers.get(timeout=20)
    thread.join()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("faults = 1", "faults: Input should be a valid list"),
        ("[[faults]\n", "line 1"),
        ('[[faults]]\ngpu = "0000:99:00.0"\nhangs = true', f"there is no such GPU, there are {FIRST}, {SECOND}"),
        ('[[faults]]\ngpu = "first"\nhangs = true', "must look like 0000:17:00.0"),
        (f'[[faults]]\ngpu = "{FIRST}"', "need either error or hangs"),
        (f'[[faults]]\ngpu = "{FIRST}"\nerror = "GPU_IS_LOST"\nhangs = true', "need either error or hangs"),
        (f'[[faults]]\ngpu = "{FIRST}"\nerror = "LOST"', "NVML has no NVML_ERROR_LOST"),
        (f'[[faults]]\ngpu = "{FIRST}"\nhangs = true\ncall = "nvmlDeviceGetNonsense"', "a function of NVML that the driver calls"),
        (f'[[faults]]\ngpu = "{FIRST}"\nhangs = true\nfor = 10', "faults.0.for: Extra inputs are not permitted, found 10"),
    ],
)
def test_a_malformed_file_is_refused_and_later_ignored(file: Path, text: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    write(file, text)
    with pytest.raises(SettingsError, match="file of simulated faults") as refused:
        node(file)
    assert told in str(refused.value)
    write(file, LOST)
    nvml = node(file)
    write(file, text)
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            nvml.nvmlDeviceGetHandleByIndex(1)
    assert [record.message for record in caplog.records] == ["faults stay as they were"]
