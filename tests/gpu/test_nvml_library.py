"""Loading the real libnvidia-ml.so.1 from a driver root, and what is said when that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from dra_driver.errors import HostError
from dra_driver.gpu import nvml
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths

SOURCE = """
#include <stdio.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "570.99.07"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
"""

PROGRAM = """
import sys, pathlib
from dra_driver.gpu import nvml
library = nvml.load(pathlib.Path(sys.argv[1]))
nvml.initialize(library)
assert nvml.load(pathlib.Path(sys.argv[1])) is library
print(library.nvmlSystemGetDriverVersion(), library.nvmlDeviceGetCount())
"""


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc")
    if found is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler (cc)")
    assert found, "CI needs a C compiler (cc)"
    return found


@pytest.mark.parametrize("directory", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib"])
def test_the_library_of_the_driver_root_is_the_one_that_answers(tmp_path: Path, compiler: str, directory: str) -> None:
    place = tmp_path / directory
    place.mkdir(parents=True)
    (tmp_path / "nvml.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", place / "libnvidia-ml.so.570.99.07", tmp_path / "nvml.c"], check=True)
    (place / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.99.07")
    # In a process of its own, since a library stays mapped.
    shown = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=True, capture_output=True, text=True)
    assert shown.stdout == "570.99.07 3\n"


def test_a_missing_library_is_an_error_that_may_go_away(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=f"driver root {tmp_path}: found no libnvidia-ml.so.1 in usr/lib64, .*install the NVIDIA driver"):
        nvml.load(tmp_path)


def test_a_library_that_is_none_is_an_error(h100: tuple[Nvml, SimulatedHostPaths]) -> None:
    with pytest.raises(HostError, match=r"NVML library .*libnvidia-ml.so.1: .*; is it for this processor"):
        nvml.load(h100[1].driver_root)
    assert pynvml.nvmlLib is None


def test_a_second_library_in_one_process_is_refused(h100: tuple[Nvml, SimulatedHostPaths], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(_name="/old/libnvidia-ml.so.1"))
    with pytest.raises(HostError, match=r"this process has mapped /old/libnvidia-ml.so.1 and cannot replace it; restart it"):
        nvml.load(h100[1].driver_root)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (pynvml.NVMLError_DriverNotLoaded, "Driver Not Loaded; load the kernel module"),
        (pynvml.NVMLError_LibRmVersionMismatch, "version mismatch.; the driver was replaced under a loaded kernel module"),
        (pynvml.NVMLError_NoPermission, "Insufficient Permissions; the process may not open /dev/nvidiactl"),
        (pynvml.NVMLError_Unknown, "Unknown Error; see the kernel log"),
    ],
)
def test_a_driver_that_does_not_answer_is_explained(
    h100: tuple[Nvml, SimulatedHostPaths], fail: Callable[..., None], error: type[Exception], advice: str
) -> None:
    fail(h100[0], "nvmlInit", error())
    with pytest.raises(HostError, match=f"NVML does not start: .*{advice}"):
        nvml.initialize(h100[0])


@pytest.mark.parametrize("value", ["GPU-ä", "GPU-ä".encode()])
def test_strings_and_bytes_are_the_same(value: str | bytes) -> None:
    assert nvml.text(value) == "GPU-ä"
