"""Which processes of this host have a device open: the last proof that nobody uses it.

A container that the API server knows nothing of any more may still run. If one of its processes has the device node open or mapped, the device is in
use, whatever everybody else says. What cannot be looked at counts as not proved.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from os import makedev
from pathlib import Path

from dra_driver.errors import HostError
from dra_driver.kubelet.cdi import DeviceNode

Number = tuple[bool, int]
"""Whether it is a block device, and its number."""
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


def host_processes(proc: Path = Path("/proc")) -> Path | None:
    """`proc` if it shows all processes of the machine, None in a container that has a /proc of its own."""
    try:
        return proc if str((proc / "self" / "ns" / "pid").readlink()) == FIRST_PID_NAMESPACE else None
    except OSError:
        return None


class DeviceUsers:
    """Looks at the processes below `proc`, the /proc of the host; None where that cannot be seen."""

    def __init__(self, proc: Path | None) -> None:
        self._proc = proc

    def find(self, nodes: Iterable[DeviceNode]) -> list[int]:
        """The processes that have one of the device nodes open or mapped. HostError when there may be more than can be seen."""
        wanted = {_number(node): node.path for node in nodes if node.type != "p"}
        if not wanted:
            return []
        if self._proc is None:
            raise HostError("the processes of this host cannot be seen; in a container, mount the host's /proc and name it by --proc-mount")
        return [int(process.name) for process in _processes(self._proc) if _uses(process, wanted)]


def _processes(proc: Path) -> list[Path]:
    try:
        found = sorted((one for one in proc.iterdir() if one.name.isdecimal()), key=lambda one: int(one.name))
    except OSError as error:
        raise HostError(f"process directory {proc}: {error.strerror}; it must be the host's /proc") from error
    if not found:
        raise HostError(f"process directory {proc}: shows no process; is it the host's /proc?")
    return found


def _uses(process: Path, wanted: dict[Number, str]) -> bool:
    """Whether the process has a device open whose number is in `wanted`, or has a file of its path mapped."""
    try:
        if any(_number_of(open_file) in wanted for open_file in (process / "fd").iterdir()):
            return True
        # A device stays mapped when the process closes it.
        maps = (process / "maps").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False  # the process has ended
    except OSError as error:
        raise HostError(f"process {process.name} cannot be looked at: {error.strerror}; the driver needs to be root with CAP_SYS_PTRACE") from error
    return any(line.removesuffix(" (deleted)").rpartition(" ")[2] in wanted.values() for line in maps.splitlines())


def _number(node: DeviceNode) -> Number:
    """Without numbers in the spec, a container runtime gives the container those that the node has on the host."""
    if node.major is not None and node.minor is not None:
        return node.type == "b", makedev(node.major, node.minor)
    path = node.host_path or node.path
    try:
        found = _number_of(Path(path))
    except OSError as error:
        raise HostError(f"device node {path}: {error.strerror}; its number is needed to tell who has it open") from error
    if found is None:
        raise HostError(f"device node {path}: is not there, or no device; its number is needed to tell who has it open")
    return found


def _number_of(path: Path) -> Number | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # closed meanwhile, or deleted
    is_block = stat.S_ISBLK(found.st_mode)
    return (is_block, found.st_rdev) if is_block or stat.S_ISCHR(found.st_mode) else None
