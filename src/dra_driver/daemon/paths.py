"""Where things are on the host. A Protocol, so that the simulated node can keep them all under one directory without root."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

import msgspec

from dra_driver.errors import HostError, HostNotReadyError


class DeviceNumbers(msgspec.Struct, frozen=True):
    """What makes a device node: `kind` is "c" or "b"."""

    kind: str
    major: int
    minor: int


class HostPaths(Protocol):
    """The host as the node program sees it.

    `driver_root` is the directory below which the NVIDIA driver's libraries and programs lie ("/" or "/run/nvidia/driver"); `dev`, `sys` and `proc`
    are the kernel's trees. All of them are paths of this program; what the container runtime is told is `on_host` of them.
    """

    @property
    def driver_root(self) -> Path:
        """Below it lie the driver's libraries and programs."""
        ...

    @property
    def dev(self) -> Path:
        """Device nodes."""
        ...

    @property
    def sys(self) -> Path:
        """The sysfs tree."""
        ...

    @property
    def proc(self) -> Path:
        """The procfs tree."""
        ...

    def on_host(self, path: Path) -> Path:
        """The host's path of what this program sees at `path`."""
        ...

    def __hash__(self) -> int:
        """A value: what was found on a host can be kept by it."""
        ...

    def device_numbers(self, path: Path) -> DeviceNumbers:
        """The numbers of a device node. HostNotReadyError when it is missing, HostError when it is no device node."""
        ...


class DriverRoot(msgspec.Struct, frozen=True):
    """The driver root as this program sees it, and its path on the host where that is another: in a container it is mounted somewhere else."""

    driver_root: Path = Path("/")
    host_driver_root: Path | None = None

    def on_host(self, path: Path) -> Path:
        """Below the driver root the host's path of it, else the same path."""
        if self.host_driver_root is None or not path.is_relative_to(self.driver_root):
            return path
        return self.host_driver_root / path.relative_to(self.driver_root)


class RealHostPaths(DriverRoot, frozen=True):
    """The kernel's own trees; the driver root is a setting."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")

    @property
    def dev(self) -> Path:
        """`<driver root>/dev` where the driver container has one of its own, else /dev."""
        own = self.driver_root / "dev"
        return own if (own / "nvidiactl").exists() else Path("/dev")

    def device_numbers(self, path: Path) -> DeviceNumbers:
        """Numbers by stat(2)."""
        return device_numbers(path)


def device_numbers(path: Path) -> DeviceNumbers:
    """The numbers of a device node by stat(2). HostNotReadyError when it is missing, HostError when it is no device node."""
    try:
        found = path.stat()
    except OSError as error:
        raise HostNotReadyError(f"device node {path}: {error.strerror}; is the NVIDIA driver loaded (nvidia-modprobe creates its nodes)?") from error
    for kind, is_kind in (("c", stat.S_ISCHR), ("b", stat.S_ISBLK)):
        if is_kind(found.st_mode):
            return DeviceNumbers(kind, os.major(found.st_rdev), os.minor(found.st_rdev))
    raise HostError(f"device node {path}: found {stat.filemode(found.st_mode)}, need a character or block device")
