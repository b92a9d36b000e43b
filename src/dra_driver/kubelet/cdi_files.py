"""The CDI spec files of prepared claims, one per claim: `<directory>/<vendor>-<class>_<claim UID>.json`.

A file carries the claim's identity in its annotations. It is ours when they say so; no other file is ever changed or removed. Files appear whole or
not at all, and are readable by everybody, since container runtimes need not run as we do. Each lists the lowest CDI version that has what it uses.
The annotations also say what the claim holds, so that a journal that was lost can be rebuilt from them. Configurations are not part of that: they may
hold secrets.

Where the driver gives metadata of a device, the files with it (`metadata`) come and go with the spec, and the spec has devices that mount them.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from dra_driver.errors import ClaimError, HostError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet import cdi_rules, requests
from dra_driver.kubelet.cdi import NO_EDITS, CdiDevice, Spec
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.files import replace_file
from dra_driver.kubelet.journal import ChangeRecord, ClaimKey, Entry, HeldDevice, each_once
from dra_driver.kubelet.metadata import MetadataFiles, cdi_device_name

ANNOTATION_DRIVER = "resource.kubernetes.io/driver"
ANNOTATION_CLAIM = "resource.kubernetes.io/claim"
ANNOTATION_CLAIM_UID = "resource.kubernetes.io/claim-uid"
ANNOTATION_HELD = "resource.kubernetes.io/claim-held"


class _Device(msgspec.Struct, omit_defaults=True):
    """A result of the allocation, and the device's UUID."""

    pool: str
    device: str
    uuid: str
    request: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin_access: bool | None = msgspec.field(default=None, name="adminAccess")


class _Held(msgspec.Struct, omit_defaults=True):
    """The annotation about what the claim holds: as in an entry of the journal, which is rebuilt from it."""

    devices: list[_Device] = []
    changes: list[ChangeRecord] = []
    pod_claim: str = ""


_WRITABLE = "the CDI directory must be writable for the driver"
_UID = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class _Annotated(msgspec.Struct):
    annotations: dict[str, str] = {}


class CdiFiles:
    """The specs of one driver in one directory. `kind` is vendor/class."""

    def __init__(self, directory: Path, *, driver: str, kind: str) -> None:
        self._directory = directory
        self._driver = driver
        self._kind = kind
        self._prefix = kind.replace("/", "-") + "_"
        # Runtimes do not look into subdirectories. Here it shares the fate of the specs: both are usually in memory and gone with a reboot.
        self._metadata = MetadataFiles(directory / f"{driver}-metadata", driver=driver)
        self._written: set[str] = set()

    def check_writable(self) -> None:
        """HostError when specs cannot be written here."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._directory):
                pass
        except OSError as error:
            raise HostError(f"CDI directory {self._directory}: {error.strerror}; it must be writable for the driver") from error

    def path(self, claim: ClaimKey) -> Path:
        """Where the spec of a claim lies. ClaimError for a UID that is no file name."""
        if not _UID.fullmatch(claim.uid):
            raise ClaimError(f"claim {claim}: the UID cannot be part of a file name; the API server never makes such UIDs")
        return self._directory / f"{self._prefix}{claim.uid}.json"

    def device_ids(self, claim: ClaimKey, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """The fully qualified CDI names for each of the plan's devices: of what the device adds to a container, and of its request's metadata.

        They hold the claim's UID, because runtimes cache by name. A device that adds nothing has none.
        """
        untold = {requests.base(device.result.request) for device in plan.devices if device.metadata is not None}
        found = []
        for device in plan.devices:
            names = [_device_name(claim, device)] if _adds(plan, device) else []
            if (request := requests.base(device.result.request)) in untold:
                untold.remove(request)  # once for each request: with its first device
                names.append(cdi_device_name(claim, request))
            found.append(tuple(f"{self._kind}={name}" for name in names))
        return tuple(found)

    def claim_uid(self, device_id: str, device: str, share_id: str | None) -> str:
        """The claim's UID in a name that `device_ids` gave for a device, "" if it gave it for another one."""
        kind, _, name = device_id.partition("=")
        uid = name.removesuffix(f"-{_device_part(device, share_id)}")
        return uid if kind == self._kind and uid != name else ""

    def ensure(self, claim: ClaimKey, plan: Plan, *, changes: Sequence[ChangeRecord] = (), pod_claim: str = "") -> bool:
        """Makes the claim's files say exactly `plan`; returns whether one had to be written.

        `changes` are what was changed on the host for the claim, `pod_claim` is its annotation `metadata.POD_CLAIM_NAME`. ClaimError when a runtime
        would refuse the spec, HostError when the files cannot be written.
        """
        path = self.path(claim)
        mounted, written = self._metadata.ensure(claim, pod_claim, plan)
        spec = self._spec(claim, plan, mounted, _Held([_noted(device) for device in plan.devices], list(changes), pod_claim))
        if spec is None:
            return written
        content = msgspec.json.format(msgspec.json.encode(spec), indent=2)
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                self._written.add(path.name)
                return written
        try:
            replace_file(path, content)
        except OSError as error:
            raise HostError(f"claim {claim}: CDI spec {path}: {error.strerror}; {_WRITABLE}") from error
        self._written.add(path.name)
        return True

    def remove(self, claim: ClaimKey) -> None:
        """Removes the claim's files; none is fine. HostError when they cannot be removed."""
        path = self.path(claim)
        self._written.discard(path.name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HostError(f"claim {claim}: CDI spec {path}: cannot be removed: {error.strerror}; {_WRITABLE}") from error
        self._metadata.remove(claim)

    def entries(self) -> Iterator[Entry]:
        """What the claims with a file of this driver hold, by the files' annotations, without configurations.

        Unreadable and foreign files are passed over; a file of a version that did not note what is held, or notes it otherwise, tells of no devices.
        """
        for path in sorted(self._directory.glob(f"{self._prefix}*.json")):
            try:
                noted = msgspec.json.decode(path.read_bytes(), type=_Annotated).annotations
            except (OSError, msgspec.MsgspecError):
                continue
            uid = noted.get(ANNOTATION_CLAIM_UID, "")
            is_copy = not _UID.fullmatch(uid) or path.name != f"{self._prefix}{uid}.json"
            if noted.get(ANNOTATION_DRIVER) == self._driver and not is_copy:
                namespace, _, name = noted.get(ANNOTATION_CLAIM, "").partition("/")
                yield self._entry(ClaimKey(namespace, name, uid), _held(noted))

    def lost(self) -> bool:
        """Whether a spec that this object wrote or found right is not there any more, though nobody removed it here. Told once for each loss."""
        try:
            there = set(os.listdir(self._directory))  # noqa: PTH208  names are enough
        except OSError:
            there = set()
        missing = self._written - there
        self._written -= missing
        return bool(missing)

    def _entry(self, claim: ClaimKey, held: _Held) -> Entry:
        results = [
            DeviceRequestAllocationResult(
                request=one.request, driver=self._driver, pool=one.pool, device=one.device, admin_access=one.admin_access, share_id=one.share_id
            )
            for one in held.devices
        ]
        devices = each_once(HeldDevice.of(result, one.uuid) for result, one in zip(results, held.devices, strict=True))
        return Entry(claim, DeviceAllocationResult(results=results), devices, tuple(held.changes), pod_claim=held.pod_claim)

    def _spec(self, claim: ClaimKey, plan: Plan, mounted: tuple[CdiDevice, ...], held: _Held) -> Spec | None:
        """None when there is nothing to add to a container."""
        devices: dict[str, CdiDevice] = {}
        for planned in plan.devices:
            if not _adds(plan, planned):
                continue
            device = CdiDevice(_device_name(claim, planned), planned.edits)
            # Two requests may have the same device, as with admin access: the runtime gets it once.
            if devices.setdefault(device.name, device) != device:
                raise ClaimError(
                    f"claim {claim}: device {planned.result.device} is allocated to several requests, and request {planned.result.request} has it "
                    "configured differently; give these requests the same configuration"
                )
        devices |= {device.name: device for device in mounted}
        if not devices:
            return None
        spec = Spec(
            cdi_version="",
            kind=self._kind,
            annotations={
                ANNOTATION_DRIVER: self._driver,
                ANNOTATION_CLAIM: f"{claim.namespace}/{claim.name}",
                ANNOTATION_CLAIM_UID: claim.uid,
                ANNOTATION_HELD: msgspec.json.encode(held).decode(),
            },
            devices=tuple(devices.values()),
            container_edits=plan.common,
        )
        spec = msgspec.structs.replace(spec, cdi_version=cdi_rules.minimal_version(spec))
        if faults := list(cdi_rules.faults(spec)):
            raise ClaimError(f"claim {claim}: container runtimes refuse its CDI spec: {'; '.join(faults)}")
        return spec


def _held(annotations: Mapping[str, str]) -> _Held:
    try:
        return msgspec.json.decode(annotations.get(ANNOTATION_HELD, "{}"), type=_Held)
    except msgspec.MsgspecError:
        return _Held()


def _adds(plan: Plan, device: PlannedDevice) -> bool:
    return device.edits != NO_EDITS or plan.common != NO_EDITS


def _noted(device: PlannedDevice) -> _Device:
    one = device.result
    return _Device(one.pool, one.device, device.uuid, one.request, one.share_id, one.admin_access)


def _device_name(claim: ClaimKey, device: PlannedDevice) -> str:
    return f"{claim.uid}-{_device_part(device.result.device, device.result.share_id)}"


def _device_part(device: str, share_id: str | None) -> str:
    return f"{device}-{share_id}" if share_id else device
