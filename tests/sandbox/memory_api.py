"""The few API calls of a kubelet, in memory: for tests in which the API server itself must fail or wait at will."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from dra_driver.errors import ApiError, ApiNotFoundError
from dra_driver.k8s.objects.core import NODES, Container, ContainerResourceClaim, Node, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dra_driver.k8s.objects.meta import Kind, ObjectMeta, OwnerReference
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)

NODE = "node-a"
DRIVER = "gpu.example.com"


class MemoryApi:
    """Stands where `k8s.client.Client` stands. `wiped` lists the field selectors of delete-collection calls."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Any] = {}
        self._changed = threading.Condition()
        self.wiped: list[str] = []
        self.wipe_errors: list[ApiError] = []
        self.put(NODES, Node(metadata=ObjectMeta(name=NODE, uid="node-uid")))

    def put(self, kind: Kind[Any], obj: Any) -> None:
        self._objects[kind.plural, obj.metadata.namespace, obj.metadata.name] = obj

    def remove(self, kind: Kind[Any], obj: Any) -> None:
        del self._objects[kind.plural, obj.metadata.namespace, obj.metadata.name]

    def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        try:
            return self._objects[kind.plural, namespace, name]
        except KeyError:
            raise ApiNotFoundError(f'{kind.plural} "{name}" not found', status=404, reason="NotFound") from None

    def delete_collection(self, kind: Kind[Any], *, field_selector: str) -> None:
        with self._changed:
            self.wiped.append(field_selector)
            self._changed.notify_all()
            if self.wipe_errors:
                raise self.wipe_errors.pop(0)

    def wait_wiped(self, count: int, timeout: float = 20.0) -> list[str]:
        """The first `count` wipes, waited for."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.wiped) >= count, timeout), self.wiped
            return self.wiped[:count]


def make_pod(name: str, *claims: ResourceClaim, requests: tuple[str, ...] = ("",)) -> Pod:
    """A pod that uses `claims` by name, in each of them reserved; its one container uses these requests of each."""
    pod = Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=str(uuid.uuid4())),
        spec=PodSpec(
            node_name=NODE,
            resource_claims=[PodResourceClaim(name=f"use-{claim.metadata.name}", resource_claim_name=claim.metadata.name) for claim in claims],
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(
                        claims=[ContainerResourceClaim(f"use-{claim.metadata.name}", request) for claim in claims for request in requests]
                    ),
                )
            ],
        ),
    )
    for claim in claims:
        reserve(claim, pod)
    return pod


def reserve(claim: ResourceClaim, pod: Pod) -> None:
    claim.status.reserved_for.append(ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid))


def make_claim(api: MemoryApi, name: str, *drivers: str, owner: Pod | None = None) -> ResourceClaim:
    """An allocated claim with one device of each driver."""
    results = [DeviceRequestAllocationResult(request="gpu", driver=driver, pool=NODE, device=f"{driver}-dev") for driver in drivers or (DRIVER,)]
    owners = [OwnerReference("v1", "Pod", owner.metadata.name, owner.metadata.uid, controller=True)] if owner else []
    claim = ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=str(uuid.uuid4()), owner_references=owners),
        status=ResourceClaimStatus(allocation=AllocationResult(DeviceAllocationResult(results))),
    )
    api.put(RESOURCE_CLAIMS, claim)
    return claim
