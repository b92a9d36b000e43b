"""Container Device Interface: how a runtime learns what a device adds to a container.

One spec file per claim, `<cdi dir>/<vendor>-<class>_<claim UID>.json`, written when the claim is prepared and removed when it is unprepared. The
file carries the claim's identity in its annotations: that is how we recognise our own files, and nothing else is ever deleted.
Format: CDI specification 0.6 to 1.1 (cncf-tags/container-device-interface). The file lists the minimal version that has all fields it uses.
"""

from __future__ import annotations

import msgspec


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    pass


class DeviceNode(_Part, frozen=True):
    """A node to create in the container. `host_path` is set where it differs from `path`; numbers where known."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    permissions: str = ""


class Mount(_Part, frozen=True):
    """A bind mount."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(_Part, frozen=True):
    """An OCI hook, such as createContainer."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class ContainerEdits(_Part, frozen=True):
    """What is added to a container. `env` entries are NAME=value."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()


class CdiDevice(_Part, frozen=True):
    """One device of a spec."""

    name: str
    container_edits: ContainerEdits = ContainerEdits()


class Spec(_Part, frozen=True):
    """One CDI spec file; `kind` is vendor/class. `container_edits` apply to a container with any of the devices."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: ContainerEdits = ContainerEdits()
    annotations: dict[str, str] = {}
