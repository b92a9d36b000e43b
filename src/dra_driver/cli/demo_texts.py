"""What `dra-driver demo` says of API objects, in lines and cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dra_driver.allocation.matching import DeviceReport
from dra_driver.allocation.pools import Candidate
from dra_driver.k8s.objects.resource import Device, DeviceSelector, ExactDeviceRequest, ResourceClaim, ResourceClaimTemplate

COLUMNS = {
    "model": "productName",
    "compute capability": "cudaComputeCapability",
    "architecture": "architecture",
    "NUMA node": "resource.kubernetes.io/numaNode",
}
"""Attributes in the table of devices."""


def cells(device: Device) -> list[str]:
    """A row of the table of devices: name, memory, `COLUMNS`."""
    memory = device.capacity.get("memory")
    values = {name: next(iter(msgspec.to_builtins(attribute).values()), "") for name, attribute in device.attributes.items()}
    return [device.name, memory.value if memory else "", *(str(values.get(name, "")) for name in COLUMNS.values())]


def selectable(candidate: Candidate) -> Iterator[str]:
    """All that a selector can ask of the device, and the answers as CEL writes them."""
    driver, device = candidate.id.driver, candidate.device
    yield f"  device.driver = {_literal('string', driver)}"
    for name, attribute in sorted(device.attributes.items(), key=lambda item: "/" in item[0]):
        ((kind, value),) = msgspec.to_builtins(attribute).items()
        yield f"  device.attributes{_access(name, driver)} = {_literal(kind, value)}"
    for name, capacity in device.capacity.items():
        yield f"  device.capacity{_access(name, driver)} = {_literal('quantity', capacity.value)}"


def _access(name: str, driver: str) -> str:
    """A name without a domain is found under the driver's."""
    domain, slash, identifier = name.partition("/")
    return f"['{domain}'].{identifier}" if slash else f"['{driver}'].{name}"


def _literal(kind: str, value: Any) -> str:
    """`kind` is the API's field: bool, int, string or version, each also as a list, or quantity."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(kind.removesuffix('s'), one) for one in value)}]"
    text = str(value)
    match kind:
        case "string":
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case "version":
            return f"semver('{text}')"
        case "quantity":
            return f"quantity('{text}')"
    return text.lower()


def verdict(one: DeviceReport) -> str:
    """Whether the device is chosen, or what speaks against it: the same text for all devices with the same reason."""
    answer = one.decisive
    if answer is None:
        return "matches"
    if answer.error:
        return f"{answer.owner}: selector #{answer.index} fails"
    return f"{answer}: {' '.join(answer.expression.split())}"


def devices(count: int) -> str:
    """So many devices."""
    return f"{count} device{'' if count == 1 else 's'}"


def with_one_mount(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with the first of its mounts, and how many others there are: they differ only in the name of the file."""
    edits = spec["containerEdits"]
    first, *others = edits["mounts"]
    return spec | {"containerEdits": edits | {"mounts": [first, f"... {len(others)} more (--full shows them)"]}} if others else spec


def one_line(selector: DeviceSelector) -> str:
    """The expression, however it was broken into lines."""
    return " ".join(selector.cel.expression.split()) if selector.cel else ""


def requests(owner: ResourceClaimTemplate | ResourceClaim) -> list[tuple[str, ExactDeviceRequest]]:
    """Names and requests; alternatives (firstAvailable) are left out."""
    spec = owner.spec.spec if isinstance(owner, ResourceClaimTemplate) else owner.spec
    return [(request.name, request.exactly) for request in spec.devices.requests if request.exactly]
