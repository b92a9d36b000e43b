"""The claims that pods of this node use, as the kubelet remembers them.

They are kept in memory and in `dra_manager_state`, a file of the kubelet's own format. Two things are only in memory, so a restart forgets them: that
a claim was prepared (the next pod that needs it asks the drivers again) and that it is being unprepared.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dra_driver.errors import ClaimRetryError, HostError
from dra_driver.k8s.objects.resource import ResourceClaim
from dra_driver.sandbox.kubelet.plugin import ClaimReference, PreparedDevice

FILE_NAME = "dra_manager_state"


@dataclass
class ClaimInfo:
    """One claim with the pods that use it and the devices that each driver prepared."""

    reference: ClaimReference
    drivers: dict[str, tuple[PreparedDevice, ...]]
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    unpreparing: bool = False

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimInfo:
        """ClaimRetryError: not allocated."""
        meta = claim.metadata
        if claim.status.allocation is None:
            raise ClaimRetryError(f"ResourceClaim {meta.name}: not allocated")
        drivers = {result.driver: () for result in claim.status.allocation.devices.results}
        return cls(ClaimReference(meta.namespace, meta.name, meta.uid), dict(drivers))

    def cdi_device_ids(self, request: str) -> list[str]:
        """The CDI names for one request of the claim, or for all if it is empty."""
        return [
            cdi_id
            for devices in self.drivers.values()
            for device in devices
            if not request or not device.request_names or request in device.request_names
            for cdi_id in device.cdi_device_ids
        ]


class ClaimCache:
    """Claims by namespace and name. All access is `with cache.locked()`; `save` writes the file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._lock = threading.RLock()
        self._claims: dict[tuple[str, str], ClaimInfo] = {}

    @contextmanager
    def locked(self) -> Iterator[dict[tuple[str, str], ClaimInfo]]:
        """The claims, for as long as the lock is held."""
        with self._lock:
            yield self._claims

    def load(self) -> None:
        """Forgets what is in memory and reads the file, if there is one. HostError: the file is damaged."""
        with self._lock:
            self._claims.clear()
            if not self._path.exists():
                return
            for stored in _decode(self._path):
                info = stored.as_info()
                self._claims[info.reference.namespace, info.reference.name] = info

    def save(self) -> None:
        """Replaces the file."""
        with self._lock:
            data = msgspec.json.encode(_Data(claim_info_state_list=[_ClaimState.of(info) for info in self._claims.values()]))
        content = msgspec.json.encode(_Checkpoint(data=data.decode(), checksum=zlib.crc32(data)))
        temporary = self._path.with_name(f".{FILE_NAME}")
        temporary.write_bytes(content)
        os.replace(temporary, self._path)  # noqa: PTH105


class _Stored(msgspec.Struct, rename="pascal"):
    pass


class _Checkpoint(_Stored):
    data: str
    checksum: int


class _Device(_Stored):
    pool_name: str
    device_name: str
    share_id: str | None = msgspec.field(name="ShareID", default=None)
    request_names: tuple[str, ...] | None = None
    cdi_device_ids: tuple[str, ...] | None = msgspec.field(name="CDIDeviceIDs", default=None)


class _Driver(_Stored):
    devices: list[_Device] | None = None


class _ClaimState(_Stored):
    claim_uid: str = msgspec.field(name="ClaimUID")
    claim_name: str
    namespace: str
    pod_uids: dict[str, dict[str, Any]] = msgspec.field(name="PodUIDs")
    driver_state: dict[str, _Driver]

    @classmethod
    def of(cls, info: ClaimInfo) -> _ClaimState:
        return cls(
            claim_uid=info.reference.uid,
            claim_name=info.reference.name,
            namespace=info.reference.namespace,
            pod_uids={uid: {} for uid in sorted(info.pods)},
            driver_state={
                driver: _Driver(devices=[_Device(d.pool, d.device, d.share_id, d.request_names, d.cdi_device_ids) for d in devices])
                for driver, devices in info.drivers.items()
            },
        )

    def as_info(self) -> ClaimInfo:
        return ClaimInfo(
            ClaimReference(self.namespace, self.claim_name, self.claim_uid),
            {
                driver: tuple(
                    PreparedDevice(d.pool_name, d.device_name, d.request_names or (), d.cdi_device_ids or (), d.share_id) for d in state.devices or ()
                )
                for driver, state in self.driver_state.items()
            },
            set(self.pod_uids),
        )


class _Data(msgspec.Struct):
    claim_info_state_list: list[_ClaimState] = msgspec.field(name="ClaimInfoStateList")
    kind: str = "DRACheckpoint"
    api_version: str = msgspec.field(name="apiVersion", default="checkpoint.dra.kubelet.k8s.io/v1")


def _decode(path: Path) -> list[_ClaimState]:
    try:
        checkpoint = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
        if zlib.crc32(checkpoint.data.encode()) != checkpoint.checksum:
            raise HostError(f"{path}: the checksum does not match the data; the kubelet does not start with a damaged checkpoint, remove the file")
        return msgspec.json.decode(checkpoint.data, type=_Data).claim_info_state_list
    except msgspec.DecodeError as error:
        raise HostError(f"{path}: {error}; the kubelet does not start with a damaged checkpoint, remove the file") from error
