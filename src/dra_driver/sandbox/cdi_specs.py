"""Which CDI devices a container runtime knows: the specs of its directories, read and checked as the CDI library of containerd 2 does.

A spec with one fault is not used at all. A device in a later directory hides one of the same name in an earlier; two in the same directory are a
conflict, and the name cannot be used. Fields that `kubelet.cdi` has no name for are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from dra_driver.errors import HostError
from dra_driver.kubelet.cdi import CdiDevice, ContainerEdits, DeviceNode, Spec

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES = ("", "b", "c", "u", "p")
NO_PERMISSIONS = "none"

_ANNOTATIONS_SINCE = "0.6.0"
_KIND = re.compile(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?/[A-Za-z](?:[\w-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", re.ASCII)


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
    if fault := next(_faults(spec), None):
        raise HostError(f"CDI spec {path}: {fault}")
    return spec


def _faults(spec: Spec) -> Iterator[str]:
    if spec.cdi_version not in VERSIONS:
        yield f"cdiVersion: found {spec.cdi_version!r}, allowed {', '.join(VERSIONS)}"
    elif spec.annotations and VERSIONS.index(spec.cdi_version) < VERSIONS.index(_ANNOTATIONS_SINCE):
        yield f"cdiVersion: found {spec.cdi_version}, annotations need {_ANNOTATIONS_SINCE}"
    if not _KIND.fullmatch(spec.kind):
        yield f"kind: found {spec.kind!r}, must be <vendor>/<class>"
    yield from _faults_of_edits("containerEdits", spec.container_edits)
    if not spec.devices:
        yield "devices: empty, must be at least one"
    names: set[str] = set()
    for device in spec.devices:
        where = f"device {device.name!r}"
        if not _DEVICE.fullmatch(device.name):
            yield f"{where}: the name must be letters, digits and _-.: between letters or digits"
        if device.name in names:
            yield f"{where}: twice in the spec"
        names.add(device.name)
        if device.container_edits == ContainerEdits():
            yield f"{where}: empty containerEdits"
        yield from _faults_of_edits(where, device.container_edits)


def _faults_of_edits(where: str, edits: ContainerEdits) -> Iterator[str]:
    for variable in (*edits.env, *(variable for hook in edits.hooks for variable in hook.env)):
        if variable.find("=") <= 0:
            yield f"{where}: env: found {variable!r}, must be NAME=value"
    for node in edits.device_nodes:
        yield from _faults_of_node(where, node)
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            yield f"{where}: mount: empty hostPath or containerPath"
    for hook in edits.hooks:
        if hook.hook_name not in HOOKS or not hook.path:
            yield f"{where}: hook: found {hook.hook_name!r} with path {hook.path!r}, allowed {', '.join(HOOKS)} with a path"


def _faults_of_node(where: str, node: DeviceNode) -> Iterator[str]:
    if not node.path:
        yield f"{where}: device node: empty path"
    if node.type not in NODE_TYPES:
        yield f"{where}: device node {node.path}: type: found {node.type!r}, allowed b, c, u, p"
    if node.permissions != NO_PERMISSIONS and set(node.permissions) - set("rwm"):
        yield f"{where}: device node {node.path}: permissions: found {node.permissions!r}, allowed r, w, m"
