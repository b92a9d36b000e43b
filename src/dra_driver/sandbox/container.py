"""What a container runtime makes of CDI names: the device nodes, mounts, environment and hooks that a container gets.

The rules are those of containerd 2: edits are joined in the order of the names, the spec's own edits once before the first of its devices; a later
environment variable, and a later device node or mount at the same place, replaces an earlier one; mounts are ordered so that parents come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from dra_driver.daemon.paths import device_numbers
from dra_driver.errors import HostError
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.kubelet.cdi_rules import NO_PERMISSIONS
from dra_driver.sandbox.cdi_specs import known_devices

CDI_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where runtimes look by default."""


@dataclass(frozen=True)
class StartedContainer:
    """What a container finds. `environment` entries are NAME=value."""

    environment: tuple[str, ...]
    device_nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    hooks: tuple[Hook, ...]


def start_container(
    cdi_device_ids: Sequence[str], *, directories: Iterable[Path] = CDI_DIRECTORIES, environment: Iterable[str] = ()
) -> StartedContainer:
    """The container with these CDI names, `<vendor>/<class>=<device>`, and the environment of its image and pod.

    HostError, where the runtime refuses the container: a name is unknown or ambiguous, or a device node is none.
    """
    known = known_devices(directories)
    unresolved = [cdi_id for cdi_id in cdi_device_ids if cdi_id not in known.devices]
    if unresolved:
        raise HostError("; ".join((f"CDI device injection failed: unresolvable CDI devices {', '.join(unresolved)}", *known.problems)))
    edits: list[ContainerEdits] = []
    specs: set[Path] = set()
    for found in (known.devices[cdi_id] for cdi_id in dict.fromkeys(cdi_device_ids)):
        if found.path not in specs:
            specs.add(found.path)
            edits.append(found.spec.container_edits)
        edits.append(found.device.container_edits)
    return _merged(edits, environment)


def _merged(edits: Sequence[ContainerEdits], environment: Iterable[str]) -> StartedContainer:
    added = [variable for edit in edits for variable in edit.env]
    variables = {variable.partition("=")[0]: variable for variable in (*environment, *added)}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    for edit in edits:
        for node in edit.device_nodes:
            nodes.pop(node.path, None)
            nodes[node.path] = _complete(node)
        for mount in edit.mounts:
            mounts.pop(mount.container_path, None)
            mounts[mount.container_path] = mount
    return StartedContainer(
        environment=tuple(variables.values()),
        device_nodes=tuple(nodes.values()),
        mounts=tuple(sorted(mounts.values(), key=lambda mount: len(PurePosixPath(mount.container_path).parts))),
        hooks=tuple(hook for edit in edits for hook in edit.hooks),
    )


def _complete(node: DeviceNode) -> DeviceNode:
    """With what the spec leaves to the runtime: the host's path, the access, and the numbers of the host's node."""
    host_path = node.host_path or node.path
    access = {"": "rwm", NO_PERMISSIONS: ""}.get(node.permissions, node.permissions)
    node = msgspec.structs.replace(node, host_path=host_path, permissions=access)
    if node.type == "p" or (node.type and node.major):
        return node
    found = device_numbers(Path(host_path))
    if node.type not in {"", found.kind}:
        raise HostError(f'CDI device ("{node.path}", "{host_path}"), host type mismatch ({node.type}, {found.kind})')
    return msgspec.structs.replace(node, type=found.kind, major=found.major, minor=found.minor)
