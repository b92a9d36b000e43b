"""Claims that were allocated by hand, one device each: the scheduler has no part in what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.kube import Kube

NAMESPACE = "bench"


@dataclass(frozen=True)
class Claim:
    """As the kubelet names it to a driver."""

    name: str
    uid: str


def make_namespace(kube: Kube) -> None:
    """An empty namespace for all claims."""
    remove_namespace(kube)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


def remove_namespace(kube: Kube) -> None:
    """With all claims; returns when it is gone."""
    kube.delete("Namespace", NAMESPACE)
    kube.wait_gone("Namespace", NAMESPACE)


def allocate(kube: Kube, driver: str, pool: str, devices: Sequence[str]) -> list[Claim]:
    """One claim for each device, in order."""
    return [_allocated(kube, driver, pool, device) for device in devices]


def _allocated(kube: Kube, driver: str, pool: str, device: str) -> Claim:
    name = f"{driver.split('.', maxsplit=1)[0]}-{device}"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}}
    stored = kube.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
    kube.patch_status("ResourceClaim", name, NAMESPACE, {"allocation": {"devices": {"results": [result]}}})
    return Claim(name, stored["metadata"]["uid"])
