"""What the controllers of a cluster do for a pod with claims, one step after the other and only when asked.

`create_claims` and `release` are the resource claim controller's (kube-controller-manager), `schedule` is the scheduler's. All state is in the API
server.
"""

from __future__ import annotations

from collections.abc import Iterator

from dra_driver.allocation.allocator import allocate, devices_in_use
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS, Pod, PodResourceClaimStatus
from dra_driver.k8s.objects.meta import ObjectMeta, OwnerReference
from dra_driver.k8s.objects.resource import (
    DEVICE_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ResourceClaim,
    ResourceClaimConsumerReference,
)

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


class ControlPlane:
    """Works on one pod at a time; a Pod that comes back is the stored one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create_claims(self, pod: Pod) -> Pod:
        """Makes a claim from every template that the pod names, owned by the pod, and notes their names in the pod's status."""
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name is None:
                continue
            template = self._client.get(RESOURCE_CLAIM_TEMPLATES, entry.resource_claim_template_name, pod.metadata.namespace)
            owner = OwnerReference(PODS.api_version, PODS.name, pod.metadata.name, pod.metadata.uid, controller=True)
            wanted = ObjectMeta(
                generate_name=f"{pod.metadata.name}-{entry.name}-",
                namespace=pod.metadata.namespace,
                labels=dict(template.spec.metadata.labels),
                annotations=template.spec.metadata.annotations | {POD_CLAIM_NAME: entry.name},
                owner_references=[owner],
            )
            claim = self._client.create(RESOURCE_CLAIMS, ResourceClaim(metadata=wanted, spec=template.spec.spec))
            pod.status.resource_claim_statuses.append(PodResourceClaimStatus(entry.name, claim.metadata.name))
        return self._client.replace(PODS, pod, subresource="status")

    def claims(self, pod: Pod) -> Iterator[ResourceClaim]:
        """The pod's claims as they are now."""
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if name := entry.resource_claim_name or made.get(entry.name):
                yield self._client.get(RESOURCE_CLAIMS, name, pod.metadata.namespace)

    def schedule(self, pod: Pod, node: str) -> Pod:
        """Allocates the pod's claims on the node, reserves them for the pod and binds the pod to the node. Raises what `allocate` raises."""
        for claim in self.claims(pod):
            self._allocate(claim, pod, node)
        pod.spec.node_name = node
        return self._client.replace(PODS, pod)

    def release(self, pod: Pod) -> None:
        """After the pod has ended: frees its claims. Those that were made for the pod go with it."""
        for claim in self.claims(pod):
            claim.status.reserved_for = [consumer for consumer in claim.status.reserved_for if consumer.uid != pod.metadata.uid]
            if not claim.status.reserved_for:
                claim.status.allocation = None
            stored = self._client.replace(RESOURCE_CLAIMS, claim, subresource="status")
            if stored.status.allocation is None:
                stored.metadata.finalizers = [finalizer for finalizer in stored.metadata.finalizers if finalizer != FINALIZER]
                self._client.replace(RESOURCE_CLAIMS, stored)

    def _allocate(self, claim: ResourceClaim, pod: Pod, node: str) -> None:
        if claim.status.allocation is None:
            classes = {found.metadata.name: found for found in self._client.list(DEVICE_CLASSES).items}
            slices = self._client.list(RESOURCE_SLICES).items
            in_use = devices_in_use(self._client.list(RESOURCE_CLAIMS).items)
            allocation = allocate(claim, slices, classes, node=node, in_use=in_use)
            claim.metadata.finalizers.append(FINALIZER)
            claim = self._client.replace(RESOURCE_CLAIMS, claim)
            claim.status.allocation = allocation
        claim.status.reserved_for.append(ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid))
        self._client.replace(RESOURCE_CLAIMS, claim, subresource="status")
