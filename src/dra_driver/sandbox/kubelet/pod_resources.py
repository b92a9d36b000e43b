"""The kubelet's PodResources API, as far as it tells of claims: what each container of each pod has, by the kubelet's own memory of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from dra_driver.errors import HostError
from dra_driver.k8s.objects.core import Container, Pod
from dra_driver.kubelet._proto import pod_resources_v1_pb2 as pb2
from dra_driver.kubelet._proto import pod_resources_v1_pb2_grpc as pb2_grpc
from dra_driver.sandbox.kubelet.claims import ClaimInfo

Claims = Callable[[Pod, Container], list[ClaimInfo]]


class PodResourcesServer(pb2_grpc.PodResourcesListerServicer):
    """Serves on `socket`: `pods` are those that are not terminated, `claims` gives the prepared claims of a container. HostError: no such socket."""

    def __init__(self, socket: Path, pods: Callable[[], list[Pod]], claims: Claims) -> None:
        self._pods, self._claims = pods, claims
        socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(1, thread_name_prefix="pod-resources"))
        pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        try:
            self._server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise HostError(f"socket {socket}: {error}") from error
        self._server.start()

    def close(self) -> None:
        """Ends."""
        self._server.stop(None).wait()

    def List(self, request: pb2.ListPodResourcesRequest, context: grpc.ServicerContext) -> pb2.ListPodResourcesResponse:  # noqa: ARG002, N802
        """All pods, also those without claims."""
        return pb2.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._pods()])

    def _pod(self, pod: Pod) -> pb2.PodResources:
        containers = [
            pb2.ContainerResources(
                name=container.name,
                dynamic_resources=[
                    pb2.DynamicResource(
                        claim_name=info.reference.name, claim_namespace=info.reference.namespace, claim_resources=list(_resources(info))
                    )
                    for info in self._claims(pod, container)
                ],
            )
            for container in pod.spec.containers
        ]
        return pb2.PodResources(name=pod.metadata.name, namespace=pod.metadata.namespace, containers=containers)


def _resources(info: ClaimInfo) -> Iterator[pb2.ClaimResource]:
    for driver, devices in info.drivers.items():
        names: list[str] = []
        for device in devices:
            names += device.cdi_device_ids  # each device comes with the names of those before it
            cdi_devices = [pb2.CDIDevice(name=name) for name in names]
            yield pb2.ClaimResource(
                cdi_devices=cdi_devices, driver_name=driver, pool_name=device.pool, device_name=device.device, share_id=device.share_id
            )
