"""What a driver author writes: from an allocation to the edits of a container.

The rest of this package is the same for every driver: sockets, registration, the claims' bookkeeping, CDI files, slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet.cdi import ContainerEdits


@dataclass(frozen=True)
class PlannedDevice:
    """One allocated device: `uuid` is its identity on this host, `edits` are what a container needs to use it."""

    result: DeviceRequestAllocationResult
    uuid: str
    edits: ContainerEdits


@dataclass(frozen=True)
class Plan:
    """All devices of one claim; `common` applies to a container that gets any of them."""

    devices: tuple[PlannedDevice, ...]
    common: ContainerEdits


class Driver(Protocol):
    """The vendor's part."""

    @property
    def name(self) -> str:
        """The driver's name, as in ResourceSlices and allocations; a DNS subdomain, 63 characters at most."""
        ...

    @property
    def cdi_kind(self) -> str:
        """vendor/class of the CDI specs, such as k8s.gpu.nvidia.com/claim."""
        ...

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        """What `allocation` (this driver's results and configurations only) means on this host, read from the host's present state.

        Changes nothing. Raises ClaimError or DeviceError when a device is unknown, of another pool or not usable; HostError when the host lacks
        something that every device needs.
        """
        ...
