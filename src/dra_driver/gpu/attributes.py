"""What a GPU says about itself in a ResourceSlice.

Names, types and spellings are those of NVIDIA's own DRA driver, so that existing claims, DeviceClasses, dcgm-exporter and dashboards keep working;
the standard names are those of k8s.io/dynamic-resource-allocation `deviceattribute`. A reading that is missing or does not fit the API's limits is
left out: a selector has to guard optional names, because CEL stops scheduling on a missing one.
"""

from __future__ import annotations

import re

from dra_driver.errors import ParseError
from dra_driver.gpu.inventory import Gpu
from dra_driver.k8s.objects.resource import Device, DeviceAttribute, DeviceCapacity
from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

MAX_LENGTH = 64
"""Bytes of a string or version (DeviceAttributeMaxValueLength)."""

_STANDARD_PCI_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def device(gpu: Gpu) -> Device:
    """The device of a ResourceSlice. Names without a domain belong to the driver that publishes them."""
    attributes = {**_strings(gpu), **_versions(gpu)[0]}
    if gpu.numa_node is not None:
        attributes[NUMA_NODE] = DeviceAttribute(int_=gpu.numa_node)
    capacity = {} if gpu.memory is None else {"memory": DeviceCapacity(str(Quantity.from_bytes(gpu.memory)))}
    return Device(name=gpu.name, attributes=attributes, capacity=capacity)


def problems(gpu: Gpu) -> tuple[str, ...]:
    """Readings that exist but had to be left out, each with the reason."""
    found = _versions(gpu)[1]
    if not _STANDARD_PCI_BUS_ID.fullmatch(gpu.pci_bus_id):
        found.append(f"{gpu.name}: {PCI_BUS_ID} is left out: {gpu.pci_bus_id} has a domain of more than four digits")
    return tuple(found)


def _strings(gpu: Gpu) -> dict[str, DeviceAttribute]:
    readings = {
        "type": "gpu",
        "uuid": gpu.uuid,
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "addressingMode": gpu.addressing_mode,
        PCI_BUS_ID: gpu.pci_bus_id if _STANDARD_PCI_BUS_ID.fullmatch(gpu.pci_bus_id) else None,
        PCIE_ROOT: gpu.pcie_root,
    }
    return {name: DeviceAttribute(string=_cut(value)) for name, value in readings.items() if value}


def _versions(gpu: Gpu) -> tuple[dict[str, DeviceAttribute], list[str]]:
    """The versions as strict semantic versions (575.57.08 is 575.57.8), and what is none."""
    readings = {
        "driverVersion": gpu.driver_version,
        "cudaDriverVersion": _dotted(gpu.cuda_driver_version),
        "cudaComputeCapability": _dotted(gpu.compute_capability),
    }
    versions: dict[str, DeviceAttribute] = {}
    problems: list[str] = []
    for name, value in readings.items():
        if value is None:
            continue
        try:
            version = str(Semver.parse_normalized(value))
        except ParseError as error:
            problems.append(f"{gpu.name}: {name} is left out: {value!r} is no version: {error}")
            continue
        if len(version) > MAX_LENGTH:
            problems.append(f"{gpu.name}: {name} is left out: {value!r} is longer than {MAX_LENGTH} bytes")
            continue
        versions[name] = DeviceAttribute(version=version)
    return versions, problems


def _dotted(version: tuple[int, int] | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"


def _cut(value: str) -> str:
    """At most 64 bytes, without half a character at the end."""
    return value.encode()[:MAX_LENGTH].decode(errors="ignore")
