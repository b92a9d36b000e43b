"""Where the driver's user space lies below a driver root: its 64-bit libraries in one directory, its programs in another.

The driver may be installed or replaced at any time, so every call looks again. Whoever remembers an answer asks `stamp` whether it still holds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from dra_driver.errors import HostNotReadyError

_LIBRARY_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
)
"""As distributions have them; `lib64` alone is Container-Optimized OS. `usr/lib` last: on some it holds 32-bit libraries."""

_PROGRAM_DIRECTORIES = ("usr/bin", "usr/local/bin", "bin")

_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")


_SETTLED = 2_000_000_000
"""Nanoseconds after which a directory's times are sure to change with its content: the kernel's clock for files is coarse."""


def stamp(driver_root: Path) -> tuple[object, ...]:
    """Equal to a former one only if since then nothing came, went or was renamed in the directories that are looked into here."""
    return tuple(directory_stamp(f"{driver_root}/{directory}") for directory in (*_LIBRARY_DIRECTORIES, *_PROGRAM_DIRECTORIES))


def directory_stamp(directory: str) -> object:
    """The same of any one directory; None where there is none."""
    try:
        seen = os.stat(directory)  # noqa: PTH116  (on the way of every prepare)
    except OSError:
        return None
    settled = seen.st_mtime_ns + _SETTLED < time.time_ns()
    return (seen.st_dev, seen.st_ino, seen.st_mtime_ns) if settled else object()


def library_directory(driver_root: Path) -> Path:
    """The directory with libnvidia-ml.so.1; HostNotReadyError where no driver is installed."""
    for directory in _LIBRARY_DIRECTORIES:
        if (driver_root / directory / "libnvidia-ml.so.1").exists():
            return driver_root / directory
    raise HostNotReadyError(
        f"driver root {driver_root}: found no libnvidia-ml.so.1 in {', '.join(_LIBRARY_DIRECTORIES)} below it; "
        "install the NVIDIA driver or set the driver root to where it is installed"
    )


def libraries(driver_root: Path, driver_version: str) -> dict[Path, tuple[str, ...]]:
    """Every library of that version, with its own name and those of the links that lead to it (libcuda.so.1, libcuda.so) in its directory.

    HostNotReadyError when libcuda.so.1 does not lead to one of them: without it no container can use the GPU.
    """
    directory = library_directory(driver_root)
    suffix = f".so.{driver_version}"
    listed = sorted(name for name in os.listdir(directory) if name.startswith("lib"))  # noqa: PTH208  (a Path for each of thousands is slow)
    found = {name.removesuffix(suffix): [name] for name in listed if name.endswith(suffix)}
    for name in listed:
        names = found.get(name.partition(".so")[0])
        if names and name != names[0] and (directory / name).resolve().name == names[0]:
            names.append(name)
    if "libcuda.so.1" not in found.get("libcuda", ()):
        raise HostNotReadyError(
            f"driver root {driver_root}: found no libcuda.so.1 that leads to libcuda{suffix} in {directory}, but driver {driver_version} is loaded; "
            "was it replaced, or is its installation not complete? Reload the kernel module or reboot"
        )
    return {directory / names[0]: tuple(names) for names in found.values()}


def programs(driver_root: Path) -> list[Path]:
    """The driver's programs that are installed."""
    candidates = ((driver_root / directory / program for directory in _PROGRAM_DIRECTORIES) for program in _PROGRAMS)
    return [path for places in candidates if (path := next((place for place in places if place.is_file()), None))]
