"""GPUs that broke while the program did not run: they are what they were when they could last be read.

A GPU that NVML cannot read has no identity but the one that was written down before. As long as the host has not booted since and the driver still
lists its PCI address, it is that GPU: it stays published with its attributes and the taint of its health, and claims that hold it can be found.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from dra_driver.daemon.paths import HostPaths
from dra_driver.gpu.inventory import Gpu, Inventory
from dra_driver.kubelet.files import replace_file

log = logging.getLogger(__name__)


class _Content(msgspec.Struct):
    boot_id: str
    gpus: list[Gpu]


class LastKnown:
    """The file in which the GPUs of this boot are written down. It helps where it can be used; where it cannot, that is logged and all goes on.

    With a `boot_id` of "" nothing is taken from it: which boot it is of cannot be told.
    """

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id

    def complete(self, inventory: Inventory, paths: HostPaths) -> Inventory:
        """The inventory with those broken GPUs that are known from before."""
        unread = [problem for problem in inventory.problems if problem.broken]
        if not unread:
            return inventory
        listed = {path.name for path in (paths.proc / "driver/nvidia/gpus").glob("*")}
        read = {gpu.pci_bus_id for gpu in inventory.gpus} | {problem.pci_bus_id for problem in inventory.problems if not problem.broken}
        kept = [gpu for gpu in self._read() if gpu.pci_bus_id in listed - read]
        for gpu in kept:
            log.warning("GPU cannot be read, it stays as it was", extra={"device": gpu.name, "uuid": gpu.uuid})
        addresses = {gpu.pci_bus_id for gpu in kept}
        nameless = [problem for problem in unread if problem.pci_bus_id is None]
        explained = {problem.index for problem in unread if problem.pci_bus_id in addresses}
        explained |= {problem.index for problem in nameless[: len(kept) - len(explained)]}
        return msgspec.structs.replace(
            inventory,
            gpus=tuple(sorted([*inventory.gpus, *kept], key=lambda gpu: gpu.pci_bus_id)),
            problems=tuple(problem for problem in inventory.problems if problem.index not in explained),
        )

    def save(self, inventory: Inventory) -> None:
        """Writes the GPUs down, broken ones too."""
        try:
            replace_file(self._path, msgspec.json.encode(_Content(self._boot_id, list(inventory.gpus))))
        except OSError as error:
            log.warning("GPUs cannot be written down, one that breaks is left out after a restart", extra={"error": str(error)})

    def _read(self) -> list[Gpu]:
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("GPUs that were written down cannot be read", extra={"file": str(self._path), "error": str(error)})
            return []
        return content.gpus if self._boot_id and content.boot_id == self._boot_id else []
