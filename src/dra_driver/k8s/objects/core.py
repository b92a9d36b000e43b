"""v1: nodes and pods, as far as a driver looks at them."""

from __future__ import annotations

import msgspec

from dra_driver.k8s.objects.meta import Kind, Object, TopLevel, always

API_VERSION = "v1"


class NodeSelectorRequirement(Object):
    """`operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Object):
    """All requirements must hold."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Object):
    """One term must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class Toleration(Object):
    """resource.k8s.io DeviceToleration; `operator` is Equal (default) or Exists."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Node(TopLevel):
    """We need its UID (owner of our slices) and labels."""

    api_version: str = always(API_VERSION)
    kind: str = always("Node")


class PodResourceClaim(Object):
    """How a pod names a claim, or the template of one."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ContainerResourceClaim(Object):
    """A container's use of one of the pod's claims; `request` limits it to one request."""

    name: str
    request: str = ""


class ResourceRequirements(Object):
    """Only the claims."""

    claims: list[ContainerResourceClaim] = []


class Container(Object):
    """Only what concerns claims."""

    name: str
    image: str = ""
    command: list[str] = []
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)


class PodSpec(Object):
    """Only what concerns claims."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    resource_claims: list[PodResourceClaim] = []


class PodResourceClaimStatus(Object):
    """Which claim was made for an entry of `spec.resourceClaims`."""

    name: str
    resource_claim_name: str | None = None


class PodStatus(Object):
    """Only what concerns claims."""

    phase: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = []


class Pod(TopLevel):
    """A consumer of claims."""

    api_version: str = always(API_VERSION)
    kind: str = always("Pod")
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


NODES = Kind(Node, API_VERSION, "Node", "nodes", namespaced=False)
PODS = Kind(Pod, API_VERSION, "Pod", "pods")
