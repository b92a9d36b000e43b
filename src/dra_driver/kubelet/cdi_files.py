"""The CDI spec files of prepared claims, one per claim.

A file is ours when its annotation says so; no other file is ever changed or removed. Files appear whole or not at all: written under a name that
runtimes ignore, flushed, then renamed. They are readable by everybody, since container runtimes need not run as we do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dra_driver.errors import ClaimError, HostError
from dra_driver.kubelet.cdi import CdiDevice, Spec
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.journal import ClaimKey

CDI_VERSION = "0.6.0"  # the first version with annotations; 0.5.0 has the edits
ANNOTATION_DRIVER = "resource.kubernetes.io/driver"
ANNOTATION_CLAIM = "resource.kubernetes.io/claim"
ANNOTATION_CLAIM_UID = "resource.kubernetes.io/claim-uid"


class CdiFiles:
    """The specs of one driver in one directory. `kind` is vendor/class."""

    def __init__(self, directory: Path, *, driver: str, kind: str) -> None:
        self._directory = directory
        self._driver = driver
        self._kind = kind
        self._prefix = kind.replace("/", "-") + "_"

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
        if not claim.uid or "/" in claim.uid:
            raise ClaimError(f"claim {claim}: the UID cannot be part of a file name; the API server never makes such UIDs")
        return self._directory / f"{self._prefix}{claim.uid}.json"

    def device_id(self, claim: ClaimKey, device: PlannedDevice) -> str:
        """The fully qualified CDI name of a device of a claim; it holds the claim's UID because runtimes cache by name."""
        return f"{self._kind}={_device_name(claim, device)}"

    def ensure(self, claim: ClaimKey, plan: Plan) -> bool:
        """Makes the claim's file say exactly `plan`; returns whether it had to be written. HostError when that is impossible."""
        content = msgspec.json.format(msgspec.json.encode(self._spec(claim, plan)), indent=2)
        path = self.path(claim)
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                return False
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise HostError(f"claim {claim}: CDI spec {path}: {error.strerror}; the CDI directory must be writable for the driver") from error
        return True

    def remove(self, claim: ClaimKey) -> None:
        """Removes the claim's file; none is fine. HostError when it cannot be removed."""
        try:
            self.path(claim).unlink(missing_ok=True)
        except OSError as error:
            raise HostError(f"claim {claim}: CDI spec {self.path(claim)}: {error.strerror}") from error

    def claims(self) -> Iterator[ClaimKey]:
        """The claims that have a file of this driver here, by the files' annotations. Unreadable and foreign files are passed over."""
        for path in sorted(self._directory.glob(f"{self._prefix}*.json")):
            try:
                spec = msgspec.json.decode(path.read_bytes(), type=Spec)
            except (OSError, msgspec.MsgspecError):
                continue
            noted = spec.annotations
            if noted.get(ANNOTATION_DRIVER) == self._driver and ANNOTATION_CLAIM_UID in noted:
                namespace, _, name = noted.get(ANNOTATION_CLAIM, "").partition("/")
                yield ClaimKey(namespace, name, noted[ANNOTATION_CLAIM_UID])

    def _spec(self, claim: ClaimKey, plan: Plan) -> Spec:
        return Spec(
            cdi_version=CDI_VERSION,
            kind=self._kind,
            annotations={
                ANNOTATION_DRIVER: self._driver,
                ANNOTATION_CLAIM: f"{claim.namespace}/{claim.name}",
                ANNOTATION_CLAIM_UID: claim.uid,
            },
            devices=tuple(CdiDevice(_device_name(claim, device), device.edits) for device in plan.devices),
            container_edits=plan.common,
        )


def _device_name(claim: ClaimKey, device: PlannedDevice) -> str:
    share = f"-{device.result.share_id}" if device.result.share_id else ""
    return f"{claim.uid}-{device.result.device}{share}"
