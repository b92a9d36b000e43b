"""The kubelet's PodResources API as the rebuild of the journal sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from dra_driver.kubelet._proto.pod_resources_v1_pb2 import (
    CDIDevice,
    ClaimResource,
    ContainerResources,
    DynamicResource,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)
from dra_driver.kubelet._proto.pod_resources_v1_pb2_grpc import PodResourcesListerServicer, add_PodResourcesListerServicer_to_server
from tests.kubelet.toy import DRIVER, NODE


class PodResourcesDouble(PodResourcesListerServicer):
    """Serves on `socket` what was added, until `stop`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.calls = 0
        self.answer = ListPodResourcesResponse()
        self._server = grpc.server(ThreadPoolExecutor(1))
        add_PodResourcesListerServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def List(self, request: ListPodResourcesRequest, context: grpc.ServicerContext) -> ListPodResourcesResponse:  # noqa: N802
        self.calls += 1
        return self.answer

    def add_pod(self, pod: str, *containers: list[DynamicResource]) -> None:
        """A pod whose containers use these claims."""
        told = [ContainerResources(name=f"c{number}", dynamic_resources=claims) for number, claims in enumerate(containers)]
        self.answer.pod_resources.append(PodResources(name=pod, namespace="default", containers=told))

    def stop(self) -> None:
        self._server.stop(None).wait()


def prepared(claim: str, *devices: str, ids: list[str] | None = None, driver: str = DRIVER, share_id: str | None = None) -> DynamicResource:
    """A claim as the kubelet tells of it: each device comes with the CDI names of those before it, too."""
    resources = [
        ClaimResource(
            driver_name=driver,
            pool_name=NODE,
            device_name=device,
            share_id=share_id,
            cdi_devices=[CDIDevice(name=one) for one in (ids or [])[: number + 1]],
        )
        for number, device in enumerate(devices)
    ]
    return DynamicResource(claim_name=claim, claim_namespace="default", claim_resources=resources)
