"""Which CDI specs are right, and which version of the specification a spec needs.

`refusals` are the rules by which the library of the runtimes (container-device-interface 1.1.1: containerd 2, CRI-O, podman) refuses a whole file:
one fault, and none of its devices exists. `faults` adds what the specification forbids and the library lets pass, which then fails when a container
starts, or with another runtime; nothing of that kind is written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping

from dra_driver.k8s import names
from dra_driver.kubelet.cdi import NO_EDITS, ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES = ("", "b", "c", "u", "p")
NO_PERMISSIONS = "none"

CLASS_MAX = 63
INTERFACE_NAME_MAX = 15  # bytes, IFNAMSIZ without its NUL
CLOS_ID_MAX = 4095
ANNOTATIONS_MAX = 256 * 1024  # bytes of all keys and values
_UINT32 = range(2**32)
_MODES = range(0o10000)

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", re.ASCII)


def minimal_version(spec: Spec) -> str:
    """The lowest version with everything that `spec` uses, whatever it declares: a newer one would shut out older runtimes for nothing."""
    every = (spec.container_edits, *(device.container_edits for device in spec.devices))
    return next((version for version, needs in _SINCE if needs(spec, every)), VERSIONS[0])


def _needs_1_1(_: Spec, every: tuple[ContainerEdits, ...]) -> bool:
    return any(edits.net_devices or (edits.intel_rdt and (edits.intel_rdt.schemata or edits.intel_rdt.enable_monitoring)) for edits in every)


def _needs_0_7(_: Spec, every: tuple[ContainerEdits, ...]) -> bool:
    return any(edits.intel_rdt or edits.additional_gids for edits in every)


def _needs_0_6(spec: Spec, _: tuple[ContainerEdits, ...]) -> bool:
    return bool(spec.annotations) or any(device.annotations for device in spec.devices) or "." in spec.kind.partition("/")[2]


def _needs_0_5(spec: Spec, every: tuple[ContainerEdits, ...]) -> bool:
    return any(device.name[:1].isdecimal() for device in spec.devices) or any(node.host_path for edits in every for node in edits.device_nodes)


def _needs_0_4(_: Spec, every: tuple[ContainerEdits, ...]) -> bool:
    return any(mount.type for edits in every for mount in edits.mounts)


# 0.8 and 1.0 changed the library only.
_SINCE: tuple[tuple[str, Callable[[Spec, tuple[ContainerEdits, ...]], bool]], ...] = (
    ("1.1.0", _needs_1_1),
    ("0.7.0", _needs_0_7),
    ("0.6.0", _needs_0_6),
    ("0.5.0", _needs_0_5),
    ("0.4.0", _needs_0_4),
)


def refusals(spec: Spec) -> Iterator[str]:
    """Why a runtime does not use this spec; none if it does."""
    if spec.cdi_version.removeprefix("v") not in VERSIONS:
        yield f"cdiVersion: found {spec.cdi_version!r}, allowed {', '.join(VERSIONS)}"
    elif VERSIONS.index(spec.cdi_version.removeprefix("v")) < VERSIONS.index(least := minimal_version(spec)):
        yield f"cdiVersion: found {spec.cdi_version}, the fields that are used need {least}"
    vendor, _, class_ = spec.kind.partition("/")
    if not _VENDOR_OR_CLASS.fullmatch(vendor) or not _VENDOR_OR_CLASS.fullmatch(class_):
        yield f"kind: found {spec.kind!r}, must be <vendor>/<class>, each letters, digits and _-. between a letter and a letter or digit"
    yield from _refused_edits("containerEdits", spec.container_edits)
    if not spec.devices:
        yield "devices: empty, must be at least one"
    seen: set[str] = set()
    for device in spec.devices:
        where = f"device {device.name!r}"
        if not _DEVICE.fullmatch(device.name):
            yield f"{where}: the name must be letters, digits and _-.: between letters or digits"
        if device.name in seen:
            yield f"{where}: twice in the spec"
        seen.add(device.name)
        if device.container_edits == NO_EDITS:
            yield f"{where}: empty containerEdits"
        yield from _refused_edits(where, device.container_edits)


def faults(spec: Spec) -> Iterator[str]:
    """All that is wrong with a spec: `refusals`, and what the specification forbids besides."""
    yield from refusals(spec)
    vendor, _, class_ = spec.kind.partition("/")
    if wrong := names.dns_subdomain_error(vendor.lower()):
        yield f"kind: vendor: found {vendor!r}: {wrong}"
    if len(class_) > CLASS_MAX:
        yield f"kind: class: found {len(class_)} characters, {CLASS_MAX} are allowed"
    yield from _forbidden_annotations("annotations", spec.annotations)
    yield from _forbidden_edits("containerEdits", spec.container_edits)
    for device in spec.devices:
        where = f"device {device.name!r}"
        yield from _forbidden_annotations(f"{where}: annotations", device.annotations)
        yield from _forbidden_edits(where, device.container_edits)


@functools.lru_cache(maxsize=256)
def _are_right(edits: ContainerEdits) -> bool:
    """What a device adds is the same for one claim after another, and judged once."""
    return not any((*_every_refusal("", edits), *_every_forbidden("", edits)))


def _refused_edits(where: str, edits: ContainerEdits) -> Iterator[str]:
    return iter(()) if _are_right(edits) else _every_refusal(where, edits)


def _forbidden_edits(where: str, edits: ContainerEdits) -> Iterator[str]:
    return iter(()) if _are_right(edits) else _every_forbidden(where, edits)


def _every_refusal(where: str, edits: ContainerEdits) -> Iterator[str]:
    for variable in edits.env:
        yield from _refused_variable(where, variable)
    for node in edits.device_nodes:
        yield from _refused_node(where, node)
    for hook in edits.hooks:
        yield from _refused_hook(where, hook)
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            yield f"{where}: mount: empty hostPath or containerPath"
    if edits.intel_rdt:
        yield from _refused_rdt(where, edits.intel_rdt)
    yield from _refused_net_devices(where, edits.net_devices)


def _refused_net_devices(where: str, devices: tuple[NetDevice, ...]) -> Iterator[str]:
    for end in ("host_interface_name", "name"):
        given = [getattr(one, end) for one in devices]
        if not all(given) or len(set(given)) < len(given):
            yield f"{where}: netDevices: found {given} as {end}, must be names, each once"


def _refused_variable(where: str, variable: str) -> Iterator[str]:
    if variable.find("=") <= 0:
        yield f"{where}: env: found {variable!r}, must be NAME=value"


def _refused_node(where: str, node: DeviceNode) -> Iterator[str]:
    if not node.path:
        yield f"{where}: device node: empty path"
    if node.type not in NODE_TYPES:
        yield f"{where}: device node {node.path}: type: found {node.type!r}, allowed b, c, u, p"
    if node.permissions != NO_PERMISSIONS and set(node.permissions) - set("rwm"):
        yield f"{where}: device node {node.path}: permissions: found {node.permissions!r}, allowed r, w, m or {NO_PERMISSIONS}"


def _refused_hook(where: str, hook: Hook) -> Iterator[str]:
    if hook.hook_name not in HOOKS or not hook.path:
        yield f"{where}: hook: found {hook.hook_name!r} with path {hook.path!r}, allowed {', '.join(HOOKS)} with a path"
    for variable in hook.env:
        yield from _refused_variable(f"{where}: hook {hook.path}", variable)


def _refused_rdt(where: str, rdt: IntelRdt) -> Iterator[str]:
    name = rdt.clos_id
    if name != "/" and (len(name.encode()) > CLOS_ID_MAX or name in {".", ".."} or "/" in name or "\n" in name):
        yield f"{where}: intelRdt: closID: found {name[:80]!r}, must be a file name of at most {CLOS_ID_MAX} bytes, or /"


def _every_forbidden(where: str, edits: ContainerEdits) -> Iterator[str]:
    for variable in edits.env:
        if "\0" in variable:
            yield f"{where}: env: found {variable!r}, must be without NUL"
    for node in edits.device_nodes:
        yield from _forbidden_node(where, node)
    yield from _forbidden_mounts(where, edits.mounts)
    for hook in edits.hooks:
        yield from _forbidden_hook(where, hook)
    for device in edits.net_devices:
        yield from _forbidden_net_device(where, device)
    for group in edits.additional_gids:
        if group not in _UINT32:
            yield f"{where}: additionalGids: found {group}, must be a number of 32 bits"


def _forbidden_node(where: str, node: DeviceNode) -> Iterator[str]:
    where = f"{where}: device node {node.path}"
    for name, path in (("path", node.path), ("hostPath", node.host_path)):
        if path and not path.startswith("/"):
            yield f"{where}: {name}: found {path!r}, must be absolute"
    for name, number, allowed in (("fileMode", node.file_mode, _MODES), ("uid", node.uid, _UINT32), ("gid", node.gid, _UINT32)):
        if number is not None and number not in allowed:
            yield f"{where}: {name}: found {number}, allowed 0 to {allowed[-1]}"
    for name, number in (("major", node.major), ("minor", node.minor)):
        if number is not None and number < 0:
            yield f"{where}: {name}: found {number}, must not be negative"


def _forbidden_mounts(where: str, mounts: tuple[Mount, ...]) -> Iterator[str]:
    for mount in mounts:
        if not mount.container_path.startswith("/"):
            yield f"{where}: mount {mount.container_path}: containerPath: found {mount.container_path!r}, must be absolute"
        # Of other mounts the "path" is whatever the file system calls its source.
        if not mount.host_path.startswith("/") and {"bind", "rbind"} & {*mount.options, mount.type}:
            yield f"{where}: mount {mount.container_path}: hostPath: found {mount.host_path!r}, must be absolute"


def _forbidden_hook(where: str, hook: Hook) -> Iterator[str]:
    where = f"{where}: hook {hook.path}"
    if not hook.path.startswith("/"):
        yield f"{where}: path: found {hook.path!r}, must be absolute"
    if hook.timeout is not None and hook.timeout <= 0:
        yield f"{where}: timeout: found {hook.timeout}, must be more than 0 seconds"


def _forbidden_net_device(where: str, device: NetDevice) -> Iterator[str]:
    for name in (device.host_interface_name, device.name):
        if len(name.encode()) > INTERFACE_NAME_MAX or "/" in name or any(letter.isspace() for letter in name) or name in {".", ".."}:
            yield f"{where}: netDevices: found {name!r}, must be the name of an interface, at most {INTERFACE_NAME_MAX} bytes without / and blanks"


_key_error = functools.lru_cache(maxsize=256)(names.label_key_error)  # one claim after another has the same keys


def _forbidden_annotations(where: str, annotations: Mapping[str, str]) -> Iterator[str]:
    for key in annotations:
        if wrong := _key_error(key.lower()):
            yield f"{where}: key {key!r}: {wrong}"
    if (size := sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())) > ANNOTATIONS_MAX:
        yield f"{where}: found {size} bytes, {ANNOTATIONS_MAX} are allowed"
