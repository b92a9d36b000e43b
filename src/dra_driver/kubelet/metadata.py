"""Device metadata (KEP-5304): a program in a container learns about its devices from a file, without the API server.

The API group is metadata.resource.k8s.io; there is no gate and the kubelet has no part in it. For each request of a claim the driver writes one file,
the same object in each API version after the other, and a CDI device mounts it where the pod's author can tell beforehand::

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/<claim>/<request>/<driver>-metadata.json
    /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/<claim's name in the pod>/<request>/<driver>-metadata.json

the second for claims that were made from a template, whose own names nobody knows beforehand.
"""

from __future__ import annotations

import contextlib
import os
from itertools import groupby
from pathlib import Path

import msgspec

from dra_driver.errors import HostError
from dra_driver.k8s.objects.meta import Object, ObjectMeta, TopLevel, always
from dra_driver.k8s.objects.resource import DeviceAttribute, NetworkDeviceData
from dra_driver.kubelet import requests
from dra_driver.kubelet.cdi import CdiDevice, ContainerEdits, Mount
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.files import replace_file
from dra_driver.kubelet.journal import ClaimKey

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made from a template: what the pod calls it."""

CONTAINER_DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
API_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""Newest first: a reader takes the first one that it knows. v1alpha1 is for programs built against Kubernetes 1.36."""


class _Device(Object):
    driver: str
    pool: str
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    network_data: NetworkDeviceData | None = None


class _Request(Object):
    name: str
    devices: list[_Device] = []


class _DeviceMetadata(TopLevel):
    api_version: str = ""
    kind: str = always("DeviceMetadata")
    pod_claim_name: str | None = None
    requests: list[_Request] = []


class MetadataFile(msgspec.Struct, frozen=True):
    """The file of one request; `request` is its name without a subrequest, `container_path` where containers find it."""

    request: str
    container_path: str
    body: _DeviceMetadata

    def content(self, generation: int) -> bytes:
        """The file's bytes, a line for each API version; `generation` begins with 1 and rises with each change."""
        meta = msgspec.structs.replace(self.body.metadata, generation=generation)
        return b"".join(
            msgspec.json.encode(msgspec.structs.replace(self.body, api_version=version, metadata=meta)) + b"\n" for version in API_VERSIONS
        )


def files_for(driver: str, claim: ClaimKey, pod_claim: str, plan: Plan) -> tuple[MetadataFile, ...]:
    """The files of a claim: of each request with a device that has metadata. `pod_claim` is the value of the annotation, "" without one."""
    by_request: dict[str, list[PlannedDevice]] = {}
    for device in plan.devices:
        by_request.setdefault(requests.base(device.result.request), []).append(device)
    directory = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.name}"
    return tuple(
        MetadataFile(
            request,
            f"{CONTAINER_DIRECTORY}/{directory}/{request}/{driver}-metadata.json",
            _DeviceMetadata(
                metadata=ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid),
                pod_claim_name=pod_claim or None,
                requests=[
                    _Request(name, [_device(driver, one) for one in some]) for name, some in groupby(devices, key=lambda one: one.result.request)
                ],
            ),
        )
        for request, devices in by_request.items()
        if any(one.metadata is not None for one in devices)
    )


def _device(driver: str, planned: PlannedDevice) -> _Device:
    known = planned.metadata
    result = planned.result
    if known is None:
        return _Device(driver, result.pool, result.device)
    return _Device(driver, result.pool, result.device, dict(known.attributes), known.network)


def cdi_device_name(claim: ClaimKey, request: str) -> str:
    """The CDI device that mounts the file of a request; other CDI devices of the claim have a "-" behind the UID."""
    return f"{claim.uid}_{request}"


class MetadataFiles:
    """The metadata files of prepared claims below a directory that the container runtime sees under the same path."""

    def __init__(self, directory: Path, *, driver: str) -> None:
        self._directory = directory
        self._driver = driver

    def ensure(self, claim: ClaimKey, pod_claim: str, plan: Plan) -> tuple[tuple[CdiDevice, ...], bool]:
        """Makes the claim's files say what `plan` says. Returns the CDI devices that mount them, and whether one had to be written. HostError."""
        devices = []
        written = False
        for file in files_for(self._driver, claim, pod_claim, plan):
            path = f"{self._directory}/{claim.uid}/{file.request}.json"
            written |= _ensure(claim, path, file)
            mount = Mount(path, file.container_path, ("ro", "bind"))
            devices.append(CdiDevice(cdi_device_name(claim, file.request), ContainerEdits(mounts=(mount,))))
        return tuple(devices), written

    def remove(self, claim: ClaimKey) -> None:
        """Removes the claim's files; none is fine. HostError when they cannot be removed."""
        directory = f"{self._directory}/{claim.uid}"
        try:
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(directory):  # noqa: PTH208  (a Path for each is slow)
                    os.unlink(f"{directory}/{name}")  # noqa: PTH108
                os.rmdir(directory)  # noqa: PTH106
        except OSError as error:
            raise HostError(
                f"claim {claim}: device metadata {directory}: cannot be removed: {error.strerror}; the CDI directory must be writable for the driver"
            ) from error


def _ensure(claim: ClaimKey, path: str, file: MetadataFile) -> bool:
    generation = 0
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        with open(path, "rb") as existing:  # noqa: PTH123  (on the way of every prepare)
            before = existing.read()
        generation = msgspec.json.decode(before.partition(b"\n")[0], type=_DeviceMetadata).metadata.generation
        if before == file.content(generation):
            return False
    try:
        replace_file(path, file.content(generation + 1))
    except OSError as error:
        raise HostError(f"claim {claim}: device metadata {path}: {error.strerror}; the CDI directory must be writable for the driver") from error
    return True
