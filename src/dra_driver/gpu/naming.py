"""Device names: DNS labels that stay the same over reboots, so they come from PCI and never from index, minor number or discovery order."""

from __future__ import annotations

from dra_driver.gpu import pci


def gpu_name(pci_bus_id: str) -> str:
    """`gpu-0000-17-00-0` for 0000:17:00.0. DeviceError if that is no PCI address."""
    return "gpu-" + pci.canonical(pci_bus_id).replace(":", "-").replace(".", "-")
