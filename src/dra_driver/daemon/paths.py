"""Where things are on the host. A Protocol, so that the simulated node can keep them all under one directory without root."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dra_driver.errors import HostError


@dataclass(frozen=True)
class DeviceNumbers:
    """What makes a device node: `kind` is "c" or "b"."""

    kind: str
    major: int
    minor: int


class HostPaths(Protocol):
    """The host as the node program sees it.

    `driver_root` is the directory below which the NVIDIA driver's libraries and programs lie ("/" or "/run/nvidia/driver"); `dev`, `sys` and `proc`
    are the kernel's trees. A path below `driver_root` or `dev` is also the path that the container runtime uses, so both must see it alike.
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

    def device_numbers(self, path: Path) -> DeviceNumbers:
        """The numbers of a device node; HostError when it is missing or no device node."""
        ...


@dataclass(frozen=True)
class RealHostPaths:
    """The kernel's own trees; the driver root is a setting."""

    driver_root: Path = Path("/")
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
    """The numbers of a device node by stat(2); HostError when it is missing or no device node."""
    try:
        found = path.stat()
    except OSError as error:
        raise HostError(f"device node {path}: {error.strerror}; is the NVIDIA driver loaded (nvidia-modprobe creates its nodes)?") from error
    for kind, is_kind in (("c", stat.S_ISCHR), ("b", stat.S_ISBLK)):
        if is_kind(found.st_mode):
            return DeviceNumbers(kind, os.major(found.st_rdev), os.minor(found.st_rdev))
    raise HostError(f"device node {path}: found {stat.filemode(found.st_mode)}, need a character or block device")
