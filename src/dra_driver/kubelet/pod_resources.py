"""What the kubelet tells about the claims of running pods (PodResources API v1, on a socket of its own): the claims that it knows to be prepared.

It says nothing about UIDs and requests, nor about pods that were deleted by force while a container of them still runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from dra_driver.errors import HostError
from dra_driver.k8s.objects.resource import DeviceRequestAllocationResult

if TYPE_CHECKING:
    from dra_driver.kubelet._proto import pod_resources_v1_pb2 as pod_resources_pb2

DEADLINE = 5.0
LONGEST_ANSWER = 16 * 1024 * 1024  # bytes, as clients of the kubelet take


@dataclass(frozen=True)
class PodClaim:
    """A claim of a running pod, and its devices of one driver; `device_ids` are CDI names of these devices. The requests are not known."""

    namespace: str
    name: str
    results: tuple[DeviceRequestAllocationResult, ...]
    device_ids: frozenset[str]


def claims_of_pods(socket: Path, driver: str) -> list[PodClaim]:
    """The claims with devices of `driver`, each once. HostError when the kubelet does not tell."""
    # Hardly ever asked, so a start need not load its messages.
    from dra_driver.kubelet._proto import pod_resources_v1_pb2 as pod_resources_pb2  # noqa: PLC0415
    from dra_driver.kubelet._proto import pod_resources_v1_pb2_grpc as pod_resources_pb2_grpc  # noqa: PLC0415

    with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.max_receive_message_length", LONGEST_ANSWER)]) as channel:
        try:
            answer = pod_resources_pb2_grpc.PodResourcesListerStub(channel).List(pod_resources_pb2.ListPodResourcesRequest(), timeout=DEADLINE)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}"
            raise HostError(f"the kubelet does not tell of the claims of running pods, socket {socket}: {why}") from error
    found: dict[tuple[str, str], PodClaim] = {}
    for claim in _claims(answer, driver):
        key = (claim.namespace, claim.name)
        found[key] = _together(found[key], claim) if key in found else claim
    return list(found.values())


def _claims(answer: pod_resources_pb2.ListPodResourcesResponse, driver: str) -> Iterator[PodClaim]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                ours = [one for one in claim.claim_resources if one.driver_name == driver]
                if ours:
                    results = _once(_result(one) for one in ours)
                    ids = frozenset(device.name for one in ours for device in one.cdi_devices)
                    yield PodClaim(claim.claim_namespace, claim.claim_name, results, ids)


def _result(one: pod_resources_pb2.ClaimResource) -> DeviceRequestAllocationResult:
    share_id = one.share_id if one.HasField("share_id") else None
    return DeviceRequestAllocationResult(request="", driver=one.driver_name, pool=one.pool_name, device=one.device_name, share_id=share_id)


def _together(one: PodClaim, other: PodClaim) -> PodClaim:
    """Two containers may use the same claim, or different requests of it."""
    return PodClaim(one.namespace, one.name, _once((*one.results, *other.results)), one.device_ids | other.device_ids)


def _once(results: Iterable[DeviceRequestAllocationResult]) -> tuple[DeviceRequestAllocationResult, ...]:
    found: list[DeviceRequestAllocationResult] = []
    for one in results:
        if one not in found:
            found.append(one)
    return tuple(found)
