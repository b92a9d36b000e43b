"""What a container gets besides its claim: device nodes, the driver's libraries and programs.

What the host has at that moment: a driver can be replaced or finish its installation while we run, and an old or incomplete set of edits starts a
container without its GPU. So files and device nodes are looked at again whenever a directory of theirs has changed, which is asked for every prepare.
What a container cannot do without is an error when it is missing.

Devices come in as CDI device nodes only, with type and numbers: what is injected behind the runtime's back is lost when systemd rewrites the cgroup.
"""

from __future__ import annotations

import functools
from pathlib import Path

from dra_driver.daemon.paths import HostPaths
from dra_driver.errors import DeviceError, DeviceNotReadyError, HostError
from dra_driver.gpu import driver_files
from dra_driver.gpu.inventory import Gpu
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode, Mount

_CONTROL_NODES = ("nvidiactl", "nvidia-uvm")
_OPTIONAL_CONTROL_NODES = ("nvidia-uvm-tools", "nvidia-modeset")

_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")


def common_edits(paths: HostPaths, driver_version: str) -> ContainerEdits:
    """What every container with a GPU gets, once. `driver_version` is that of the loaded driver; HostError when a part is missing."""
    dev = paths.dev
    return _common_edits(paths, dev, driver_version, (driver_files.directory_stamp(str(dev)), driver_files.stamp(paths.driver_root)))


def gpu_edits(gpu: Gpu, paths: HostPaths) -> ContainerEdits:
    """The device node of one GPU. DeviceNotReadyError while it does not exist, DeviceError when it is something else."""
    dev = paths.dev
    try:
        return _gpu_edits(paths, dev, gpu.minor, driver_files.directory_stamp(str(dev)))
    except HostError as error:
        kind = DeviceNotReadyError if error.retryable else DeviceError
        raise kind(f"device {gpu.name} ({gpu.uuid}): {error}") from error


# Found once for each state of the directories: to look through thousands of files takes longer than all else that a prepare does.


@functools.lru_cache(maxsize=1)
def _common_edits(paths: HostPaths, dev: Path, driver_version: str, stamp: object) -> ContainerEdits:  # noqa: ARG001  (a part of the cache's key)
    optional = [name for name in _OPTIONAL_CONTROL_NODES if (dev / name).exists()]
    return ContainerEdits(
        # A container with the legacy NVIDIA runtime as well would otherwise get all GPUs from it.
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        device_nodes=tuple(_node(paths, dev / name) for name in (*_CONTROL_NODES, *optional)),
        mounts=(*_library_mounts(paths, driver_version), *_program_mounts(paths)),
    )


@functools.lru_cache(maxsize=64)
def _gpu_edits(paths: HostPaths, dev: Path, minor: int, stamp: object) -> ContainerEdits:  # noqa: ARG001
    return ContainerEdits(device_nodes=(_node(paths, dev / f"nvidia{minor}"),))


def _node(paths: HostPaths, seen: Path) -> DeviceNode:
    numbers = paths.device_numbers(seen)
    host, path = str(paths.on_host(seen)), f"/dev/{seen.name}"
    return DeviceNode(path, host_path="" if host == path else host, type=numbers.kind, major=numbers.major, minor=numbers.minor)


def _library_mounts(paths: HostPaths, driver_version: str) -> list[Mount]:
    # Programs ask for libcuda.so.1, a link that only ldconfig in the container could make. So each library is mounted under the names of its links
    # as well, and no hook has to run in the container.
    return [
        _mount(paths, library, library.with_name(name))
        for library, names in driver_files.libraries(paths.driver_root, driver_version).items()
        for name in names
    ]


def _program_mounts(paths: HostPaths) -> list[Mount]:
    return [_mount(paths, program, program) for program in driver_files.programs(paths.driver_root)]


def _mount(paths: HostPaths, file: Path, shown_as: Path) -> Mount:
    """In the container a file has the path that it has below the driver root."""
    return Mount(str(paths.on_host(file)), f"/{shown_as.relative_to(paths.driver_root)}", _READ_ONLY)
