"""Container Device Interface: what a device adds to a container, in the form in which runtimes read it.

The structs are the whole model of CDI 0.3 to 1.1 (cncf-tags/container-device-interface); `cdi_rules` says which specs are right and which version a
spec needs, `cdi_files` keeps the files. Unknown fields are refused, as runtimes do; so the two fields of IntelRdt that 1.1 dropped are left out here.
"""

from __future__ import annotations

import msgspec


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    pass


class DeviceNode(_Part, frozen=True):
    """A node to create in the container. `host_path` is set where it differs from `path`; numbers where known, else the runtime looks at the host's.

    `type` is b, c, u or p. `permissions` are those of the cgroup: some of r, w, m, or "none"; "" is all. `file_mode` is the node's, as chmod(2) has
    it; `uid` and `gid` are of the container's user namespace.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class NetDevice(_Part, frozen=True):
    """A network interface that moves from the host into the container, where it is called `name` (CDI 1.1)."""

    host_interface_name: str
    name: str


class Mount(_Part, frozen=True):
    """A mount; of a file or directory of the host if `options` have bind or rbind, else of the file system `type`."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True):
    """A program of the host that the runtime runs at one point of the container's life (`cdi_rules.HOOKS`). `timeout` is seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class IntelRdt(_Part, frozen=True):
    """Shares of cache and memory bandwidth by resctrl (CDI 0.7; `schemata` and `enable_monitoring` 1.1). `clos_id` names a class of service."""

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


class ContainerEdits(_Part, frozen=True):
    """What is added to a container. `env` entries are NAME=value; `additional_gids` are of the container's process (CDI 0.7)."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()


NO_EDITS = ContainerEdits()


class CdiDevice(_Part, frozen=True):
    """One device of a spec."""

    name: str
    container_edits: ContainerEdits = NO_EDITS
    annotations: dict[str, str] = {}


class Spec(_Part, frozen=True):
    """One CDI spec file; `kind` is vendor/class. `container_edits` apply to a container with any of the devices."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: ContainerEdits = NO_EDITS
    annotations: dict[str, str] = {}
