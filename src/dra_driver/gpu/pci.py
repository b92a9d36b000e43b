"""PCI addresses `dddd:bb:dd.f`, and what sysfs knows about them. An address stays the same over reboots; NVML indices and minors do not."""

from __future__ import annotations

import re
from pathlib import Path

from dra_driver.errors import DeviceError

_ADDRESS = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.IGNORECASE)
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


def canonical(address: str) -> str:
    """Lower case, and a domain of four digits as the kernel writes it (more only where it is larger). DeviceError if it is no address."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise DeviceError(f"PCI address {address!r} must look like 0000:17:00.0")
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def pcie_root(sys: Path, address: str) -> str | None:
    """The root complex `pcidddd:bb` that leads to the device, by the kernel's device tree; None where it does not say."""
    try:
        place = _directory(sys, address).resolve(strict=True)
    except OSError:
        return None
    return next((part for part in place.parts if _ROOT.fullmatch(part)), None)


def numa_node(sys: Path, address: str) -> int | None:
    """The NUMA node next to the device; None where the firmware does not say (-1)."""
    try:
        node = int((_directory(sys, address) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _directory(sys: Path, address: str) -> Path:
    return sys / "bus/pci/devices" / address
