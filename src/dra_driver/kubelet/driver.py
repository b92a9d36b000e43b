"""What a driver author writes: from an allocation to the edits of a container.

The rest of this package is the same for every driver: sockets, registration, the claims' bookkeeping, CDI files, slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from dra_driver.errors import HostError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceAttribute, DeviceRequestAllocationResult, NetworkDeviceData
from dra_driver.kubelet.cdi import NO_EDITS, ContainerEdits


class DeviceMetadata(msgspec.Struct, frozen=True):
    """What the programs in a container are told about a device, in a file (KEP-5304). Attributes are named as in a ResourceSlice."""

    attributes: Mapping[str, DeviceAttribute] = {}
    network: NetworkDeviceData | None = None


class PlannedDevice(msgspec.Struct, frozen=True):
    """One allocated device: `uuid` is its identity on this host, `edits` are what a container needs to use it; none is fine.

    With `metadata` the containers find a file about the device; a device without it costs nothing.
    """

    result: DeviceRequestAllocationResult
    uuid: str
    edits: ContainerEdits
    metadata: DeviceMetadata | None = None


class HostChange(msgspec.Struct, frozen=True):
    """A setting of this host that a claim needs, such as a device's compute mode: `subject` names it, `value` is what it must be.

    No secrets: both are noted in the claim's CDI spec, which everybody can read.
    """

    subject: str
    value: str


class Plan(msgspec.Struct, frozen=True):
    """All devices of one claim, one for each result of the allocation; `common` applies to a container that gets any of them.

    `changes` are made in their order before the claim counts as prepared, and taken back in the reverse order when it is unprepared.
    """

    devices: tuple[PlannedDevice, ...]
    common: ContainerEdits = NO_EDITS
    changes: tuple[HostChange, ...] = ()


class Driver(Protocol):
    """The vendor's part. A class that derives from this one needs only `name` and `plan`."""

    @property
    def name(self) -> str:
        """The driver's name, as in ResourceSlices and allocations; a DNS subdomain, 63 characters at most."""
        ...

    @property
    def cdi_kind(self) -> str:
        """vendor/class of the CDI specs, such as k8s.gpu.nvidia.com/claim. Once claims are prepared it must stay."""
        return f"k8s.{self.name}/claim"

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        """What `allocation` (this driver's results and configurations only) means on this host, read from the host's present state.

        Changes nothing. Raises ClaimError or DeviceError when a device is unknown, of another pool or not usable; HostError when the host lacks
        something that every device needs.
        """
        ...

    def related(self, uuid: str) -> Sequence[str]:  # noqa: ARG002
        """UUIDs of the devices that cannot be used together with this one, such as the MIG devices of a GPU; the relation goes both ways."""
        return ()

    def read_setting(self, subject: str) -> str:
        """What a setting that `plan` changes is now. Raises DraError."""
        raise HostError(f"setting {subject}: this driver reads none")

    def apply_setting(self, change: HostChange) -> None:
        """Makes the setting so; nothing to do if it is so already. May be repeated at any time. Raises DraError."""
        raise HostError(f"setting {change.subject}: this driver makes none")

    def host_stamp(self) -> object:
        """Whatever is unequal to a former one once `plan` may find other files on this host; device nodes do not count.

        It is asked every second. After a change the CDI specs of all prepared claims are compared with new plans, since the kubelet does not ask
        again for pods that run.
        """
        return None
