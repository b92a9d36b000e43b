"""A GPU node without a GPU: an NVML that is driven by a profile, and a driver root in an ordinary directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from dra_driver.daemon.paths import DeviceNumbers
from dra_driver.gpu.nvml import Nvml
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths, build
from dra_driver.gpu.simulator.nvml import SimulatedNvml
from dra_driver.gpu.simulator.profile import Profile


def simulate(
    profile_name: str,
    root: Path,
    *,
    host_root: Path | None = None,
    gpus: int | None = None,
    seed: str,
    real_nodes: bool = True,
    faults: Path | None = None,
    numbers: Sequence[DeviceNumbers] = (),
) -> tuple[Nvml, SimulatedHostPaths]:
    """NVML (not yet initialized) and host of a node with `gpus` GPUs (None: as many as the profile's machine has).

    `root` becomes its driver root: it has to be new, empty or made by an earlier call, and what else is in it is removed. In a container `host_root`
    is the host's path of it. Without `real_nodes`, and where the process may not make device nodes, files stand in for them: enough for a demo.
    `seed` is what makes this node's GPUs its own, such as the node's name. The file `faults` breaks GPUs (`simulator.faults`). The first GPUs' device
    nodes have the `numbers`, where they are given: a container can open those of a device that exists. SettingsError for an unknown profile, a wrong
    number or a malformed file, HostError when `root` cannot be written or is somebody else's directory.
    """
    profile = Profile.load(profile_name, gpus=gpus)
    machine = profile.gpus(seed)
    nvml: Nvml = SimulatedNvml(profile, machine)
    if faults is not None:
        from dra_driver.gpu.simulator.faults import FaultFile, FaultyNvml  # noqa: PLC0415  pydantic is only for who breaks GPUs

        nvml = cast("Nvml", FaultyNvml(nvml, FaultFile(faults, [gpu.slot.pci for gpu in machine])))
    return nvml, build(root, profile, machine, host_root=host_root, real_nodes=real_nodes, numbers=numbers)
