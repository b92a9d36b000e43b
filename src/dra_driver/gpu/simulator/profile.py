"""Profiles: machines with GPUs as files in `profiles/`, with figures as the hardware and driver of that time report them."""

from __future__ import annotations

import difflib
import tomllib
import uuid
from dataclasses import dataclass
from importlib import resources

import msgspec

from dra_driver.errors import SettingsError

_MINORS = 254
"""Minor numbers of GPUs; 254 and 255 are nvidia-modeset and nvidiactl."""

_NAMESPACE = uuid.UUID("b1f5d0c6-6d0a-5a0f-9c58-2f8c7b1f6d11")


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place for a GPU: its PCI address, the bridges that lead to it from the root, its minor number and NUMA node."""

    pci: str
    via: tuple[str, ...]
    minor: int
    numa_node: int


@dataclass(frozen=True)
class SimulatedGpu:
    """One GPU of one simulated node."""

    slot: Slot
    uuid: str


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of machine. `brand`, `architecture` and `addressing_mode` end the names of NVML's constants.

    Without `memory_mib` NVML does not support the question, without `addressing_mode` the driver does not know the function.
    """

    description: str
    driver_version: str
    cuda_version: str
    product_name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    pci_device_id: int
    pci_subsystem_id: int
    slots: tuple[Slot, ...]
    memory_mib: int | None = None
    addressing_mode: str | None = None

    @classmethod
    def names(cls) -> list[str]:
        """Every profile there is."""
        return sorted(file.name.removesuffix(".toml") for file in _directory().iterdir() if file.name.endswith(".toml"))

    @classmethod
    def load(cls, name: str, *, gpus: int | None = None) -> Profile:
        """The profile, with as many slots as `gpus` says. Beyond the machine's own slots it goes on in further PCI domains."""
        known = cls.names()
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingsError(f"GPU profile {name!r} does not exist; there are {', '.join(known)}{hint}")
        profile = msgspec.convert(tomllib.loads((_directory() / f"{name}.toml").read_text()), cls)
        if gpus is None:
            return profile
        most = _MINORS // len(profile.slots) * len(profile.slots)
        if not 0 <= gpus <= most:
            raise SettingsError(f"GPU profile {name}: {gpus} GPUs were asked for, 0 to {most} are possible")
        return msgspec.structs.replace(profile, slots=tuple(_slot(profile.slots, index) for index in range(gpus)))

    def gpus(self, seed: str) -> tuple[SimulatedGpu, ...]:
        """The GPUs of one node, in NVML's order. The same seed gives the same UUIDs, another seed others."""
        return tuple(SimulatedGpu(slot, f"GPU-{uuid.uuid5(_NAMESPACE, f'{self.product_name}/{seed}/{slot.pci}')}") for slot in self.slots)


def _directory() -> resources.abc.Traversable:
    return resources.files(__package__) / "profiles"


def _slot(slots: tuple[Slot, ...], index: int) -> Slot:
    domain, place = divmod(index, len(slots))
    slot = slots[place]
    return Slot(_moved(slot.pci, domain), tuple(_moved(bridge, domain) for bridge in slot.via), slot.minor + domain * len(slots), slot.numa_node)


def _moved(address: str, domains: int) -> str:
    domain, rest = address.split(":", 1)
    return f"{int(domain, 16) + domains:04x}:{rest}"
