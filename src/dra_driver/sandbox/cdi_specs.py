"""Which CDI devices a container runtime knows: the specs of its directories, read and checked as the CDI library of containerd 2 does.

A spec with one fault, or with a field that the library does not know, is not used at all. A device in a later directory hides one of the same name
in an earlier; two in the same directory are a conflict, and the name cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from dra_driver.errors import HostError
from dra_driver.kubelet import cdi_rules
from dra_driver.kubelet.cdi import CdiDevice, Spec


@dataclass(frozen=True)
class FoundDevice:
    """A device and the spec that it stands in."""

    path: Path
    spec: Spec
    device: CdiDevice


@dataclass(frozen=True)
class KnownDevices:
    """Devices by their fully qualified name, and why others are not among them."""

    devices: dict[str, FoundDevice] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def known_devices(directories: Iterable[Path]) -> KnownDevices:
    """What the directories hold now; a directory that is missing is an empty one."""
    known = KnownDevices()
    conflicts: set[str] = set()
    for directory in directories:
        for path in sorted(path for path in directory.glob("*") if path.suffix in {".json", ".yaml"}):
            try:
                spec = read_spec(path)
            except HostError as error:
                known.problems.append(str(error))
                continue
            for device in spec.devices:
                name = f"{spec.kind}={device.name}"
                other = known.devices.get(name)
                if other and other.path.parent == directory:
                    conflicts.add(name)
                    known.problems.append(f'conflicting device "{name}" (specs "{path}", "{other.path}")')
                else:
                    known.devices[name] = FoundDevice(path, spec, device)
    for name in conflicts:
        del known.devices[name]
    return known


def read_spec(path: Path) -> Spec:
    """One file. HostError: unreadable, or refused by the runtime."""
    try:
        content = path.read_bytes()
        spec = msgspec.convert(yaml.safe_load(content), type=Spec) if path.suffix == ".yaml" else msgspec.json.decode(content, type=Spec)
    except (OSError, yaml.YAMLError, msgspec.DecodeError) as error:
        raise HostError(f"CDI spec {path}: {error}") from error
    if fault := next(cdi_rules.refusals(spec), None):
        raise HostError(f"CDI spec {path}: {fault}")
    return spec
