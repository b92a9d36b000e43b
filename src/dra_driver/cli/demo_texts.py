"""What `dra-driver demo` says of API objects, in lines and cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dra_driver.allocation.matching import DeviceReport
from dra_driver.allocation.pools import Candidate
from dra_driver.k8s.objects.resource import Device, DeviceSelector, ExactDeviceRequest, ResourceClaim, ResourceClaimTemplate
from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

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
    """All that a selector can ask of the device, and the answers."""
    view = candidate.view
    yield f"  device.driver = {_literal(view.driver)}"
    for what, domains in (("attributes", view.attributes), ("capacity", view.capacity)):
        for domain, values in domains.items():
            yield from (f"  device.{what}['{domain}'].{name} = {_literal(value)}" for name, value in values.items())


def _literal(value: object) -> str:
    """How CEL writes the value."""
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case Semver():
            return f"semver('{value}')"
        case Quantity():
            return f"quantity('{value}')"
    return str(value)


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
