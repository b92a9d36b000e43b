"""Simulated nodes below a temporary directory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.gpu.inventory import Inventory, discover
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator import simulate
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths

Node = tuple[Nvml, SimulatedHostPaths]


@pytest.fixture
def h100(tmp_path: Path) -> Node:
    """An initialized node with two H100."""
    nvml, paths = simulate("h100-sxm-80gb", tmp_path / "driver", gpus=2, seed="node-a")
    nvml.nvmlInit()
    return nvml, paths


@pytest.fixture
def inventory(h100: Node) -> Inventory:
    return discover(*h100)


@pytest.fixture
def fail() -> Callable[..., None]:
    """Lets one function of a simulated NVML fail, for one GPU or (index None) always."""

    def install(nvml: Nvml, function: str, error: Exception, index: int | None = None) -> None:
        answer = getattr(nvml, function)
        broken = None if index is None else _address(nvml.nvmlDeviceGetHandleByIndex(index))

        def call(*args: Any) -> Any:
            if index is None or (args and (args[0] == index or _address(args[0]) == broken)):
                raise error
            return answer(*args)

        setattr(nvml, function, call)

    return install


def _address(handle: Any) -> int | None:
    return None if isinstance(handle, int) else ctypes.cast(handle, ctypes.c_void_p).value
