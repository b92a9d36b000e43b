"""A driver root: the part of a host that the NVIDIA driver fills, in an ordinary directory. /dev, /proc and /sys lie below it too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dra_driver.daemon.paths import DeviceNumbers, DriverRoot, device_numbers
from dra_driver.gpu.simulator.directory_tree import Entry, File, Link, Node, make_true, stand_in_numbers
from dra_driver.gpu.simulator.profile import Profile, SimulatedGpu

_MAJOR = 195  # fixed for nvidia; the kernel hands out the others, /proc/devices tells them
_CAPS_MAJOR = 234
_UVM_MAJOR = 508

_LIBRARY_DIRECTORY = "usr/lib/x86_64-linux-gnu"
_LIBRARIES = {
    "libcuda": 1,
    "libcudadebugger": 1,
    "libnvcuvid": 1,
    "libnvidia-encode": 1,
    "libnvidia-gpucomp": None,
    "libnvidia-ml": 1,
    "libnvidia-nvvm": 4,
    "libnvidia-opencl": 1,
    "libnvidia-ptxjitcompiler": 1,
}
"""Compute libraries and the version in their soname."""

_PROC_DEVICES = f"""\
Character devices:
  1 mem
  5 /dev/tty
{_MAJOR} nvidia
{_MAJOR} nvidia-modeset
{_MAJOR} nvidiactl
{_CAPS_MAJOR} nvidia-caps
{_UVM_MAJOR} nvidia-uvm

Block devices:
  8 sd
"""


class SimulatedHostPaths(DriverRoot, frozen=True):
    """`daemon.paths.HostPaths` with everything below one directory."""

    @property
    def dev(self) -> Path:
        """Device nodes."""
        return self.driver_root / "dev"

    @property
    def sys(self) -> Path:
        """The kernel's sysfs."""
        return self.driver_root / "sys"

    @property
    def proc(self) -> Path:
        """The kernel's procfs."""
        return self.driver_root / "proc"

    def device_numbers(self, path: Path) -> DeviceNumbers:
        """Of a real node, or of the file that stands in for it."""
        return stand_in_numbers(path) or device_numbers(path)


def build(
    root: Path,
    profile: Profile,
    gpus: tuple[SimulatedGpu, ...],
    *,
    host_root: Path | None = None,
    real_nodes: bool = True,
    numbers: Sequence[DeviceNumbers] = (),
) -> SimulatedHostPaths:
    """Makes `root` the driver root of a node with these GPUs; a second time it changes nothing, for other GPUs it rebuilds.

    `host_root` is the host's path of `root` where that is another; `numbers` are those of the first GPUs' device nodes instead of NVIDIA's.

    Without `real_nodes`, and where the process may not make device nodes, files stand in for them: enough for a demo, not for a container.
    HostError when `root` cannot be written or holds somebody else's files.
    """
    make_true(root, {**_devices(gpus, numbers), **_user_space(profile, gpus), **_proc(profile, gpus), **_sys(profile, gpus)}, real_nodes=real_nodes)
    return SimulatedHostPaths(root, host_root)


def _devices(gpus: tuple[SimulatedGpu, ...], numbers: Sequence[DeviceNumbers]) -> dict[str, Entry]:
    given = [Node(one.major, one.minor) for one in numbers]
    nvidia = [Node(_MAJOR, gpu.slot.minor) for gpu in gpus[len(given) :]]
    return {
        **{f"dev/nvidia{gpu.slot.minor}": node for gpu, node in zip(gpus, [*given, *nvidia], strict=False)},
        "dev/nvidiactl": Node(_MAJOR, 255),
        "dev/nvidia-modeset": Node(_MAJOR, 254),
        "dev/nvidia-uvm": Node(_UVM_MAJOR, 0),
        "dev/nvidia-uvm-tools": Node(_UVM_MAJOR, 1),
        "dev/nvidia-caps/nvidia-cap1": Node(_CAPS_MAJOR, 1),
        "dev/nvidia-caps/nvidia-cap2": Node(_CAPS_MAJOR, 2),
    }


def _user_space(profile: Profile, gpus: tuple[SimulatedGpu, ...]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {"usr/bin/nvidia-smi": File(_nvidia_smi(profile, gpus), 0o755)}
    for library, version in _LIBRARIES.items():
        file = f"{library}.so.{profile.driver_version}"
        entries[f"{_LIBRARY_DIRECTORY}/{file}"] = File(f"simulated {file}\n")
        if version is not None:
            entries[f"{_LIBRARY_DIRECTORY}/{library}.so.{version}"] = Link(file)
    entries[f"{_LIBRARY_DIRECTORY}/libcuda.so"] = Link("libcuda.so.1")
    return entries


def _nvidia_smi(profile: Profile, gpus: tuple[SimulatedGpu, ...]) -> str:
    """A program for the container: it lists, as `nvidia-smi -L` does, the GPUs whose device nodes it sees."""
    rows = "".join(f"{gpu.slot.minor}|{profile.product_name} (UUID: {gpu.uuid})\n" for gpu in gpus)
    return f"""\
#!/bin/sh
# Simulated driver {profile.driver_version}
count=0
while IFS='|' read -r minor gpu; do
  if [ -e "/dev/nvidia$minor" ]; then
    echo "GPU $count: $gpu"
    count=$((count + 1))
  fi
done <<'GPUS'
{rows}GPUS
[ "$count" -gt 0 ] || echo 'No devices were found'
"""


def _proc(profile: Profile, gpus: tuple[SimulatedGpu, ...]) -> dict[str, Entry]:
    nvidia = "proc/driver/nvidia"
    entries: dict[str, Entry] = {
        "proc/devices": File(_PROC_DEVICES, 0o444),
        f"{nvidia}/version": File(f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {profile.driver_version}  simulated\n", 0o444),
        f"{nvidia}/capabilities/mig/config": _capability(1),
        f"{nvidia}/capabilities/mig/monitor": _capability(2),
    }
    for gpu in gpus:
        rows = {
            "Model": profile.product_name,
            "GPU UUID": gpu.uuid,
            "Bus Type": "PCIe",
            "Bus Location": gpu.slot.pci,
            "Device Minor": gpu.slot.minor,
            "GPU Firmware": profile.driver_version,
            "GPU Excluded": "No",
        }
        entries[f"{nvidia}/gpus/{gpu.slot.pci}/information"] = File("".join(f"{key}: \t {value}\n" for key, value in rows.items()), 0o444)
    return entries


def _capability(minor: int) -> File:
    return File(f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n", 0o444)


def _sys(profile: Profile, gpus: tuple[SimulatedGpu, ...]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for gpu in gpus:
        slot = gpu.slot
        bridge = slot.via[0]
        place = "/".join(("devices", f"pci{bridge[: bridge.rindex(':')]}", *slot.via, slot.pci))
        entries[f"sys/bus/pci/devices/{slot.pci}"] = Link(f"../../../{place}")
        files = {"vendor": "0x10de", "device": f"{profile.pci_device_id:#06x}", "class": "0x030200", "numa_node": slot.numa_node}
        entries |= {f"sys/{place}/{name}": File(f"{value}\n", 0o444) for name, value in files.items()}
    return entries
