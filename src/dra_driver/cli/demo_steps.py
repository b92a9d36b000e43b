"""The steps of `dra-driver demo`: what happens, which component does it in a real cluster, and what came of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from dra_driver.allocation.matching import DeviceReport, report
from dra_driver.allocation.pools import Candidate, gather_pools
from dra_driver.cli.demo_texts import COLUMNS, cells, devices, one_line, requests, selectable, verdict, with_one_mount
from dra_driver.cli.screen import Screen
from dra_driver.errors import ClaimError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import PODS, Container, ContainerResourceClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dra_driver.k8s.objects.meta import ObjectMeta, TopLevel
from dra_driver.k8s.objects.resource import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.kubelet.metadata import CONTAINER_DIRECTORY
from dra_driver.sandbox import manifests
from dra_driver.sandbox.container import StartedContainer
from dra_driver.sandbox.control_plane import ControlPlane
from dra_driver.sandbox.node import SimulatedNode

NODE = "node-a"
POD = "demo"
STEPS = 13
MANIFESTS = ("deviceclass.yaml", "resourceclaimtemplate.yaml")


class Demo:
    """The steps, in the order of `tell`."""

    def __init__(self, screen: Screen, client: Client, node: SimulatedNode, *, full: bool = False) -> None:
        self._screen = screen
        self._full = full
        self._calls_told = 0
        self._client = client
        self._node = node
        self._control_plane = ControlPlane(client)

    def tell(self, profile: str, objects: list[TopLevel]) -> bool:
        """Whether devices were found for the claim."""
        candidates = self._candidates()
        self._screen.title(f"One GPU, from the driver into a container: a simulated node of profile {profile}, no cluster, no GPU, no root.")
        self._node_program(candidates)
        self._registration()
        self._slices(candidates)
        template = self._install(objects)
        pod, claim = self._claim(template)
        reports = self._selectors(claim, candidates)
        try:
            pod = self._allocation(pod, claim)
        except ClaimError as error:
            self._nothing_fits(error, candidates, reports)
            return False
        containers = self._prepare(pod)
        self._cdi_spec(pod)
        self._container(containers)
        self._unprepare(pod, claim)
        self._release(pod, claim)
        self._end()
        return True

    def _candidates(self) -> list[Candidate]:
        return [candidate for pool in gather_pools(self._client.list(RESOURCE_SLICES).items, NODE) for candidate in pool.candidates()]

    def _node_program(self, candidates: list[Candidate]) -> None:
        self._screen.step(
            "The node program starts",
            "It asks the NVIDIA driver (NVML, simulated here) which GPUs the node has, and serves two unix sockets for the kubelet.",
            who="a DaemonSet runs `dra-driver node` on every GPU node",
        )
        self._screen.lines(f"node {NODE}, {len(candidates)} GPUs")
        self._screen.lines(*(f"{name}: {getattr(self._node.settings, name)}" for name in ("plugin_dir", "registry_dir", "cdi_dir", "driver_root")))

    def _registration(self) -> None:
        self._screen.step(
            "The driver is registered",
            "The kubelet sees the registrar socket, asks whose it is, and tells that the driver is accepted.",
            who="the kubelet of the node, which watches /var/lib/kubelet/plugins_registry",
        )
        self._calls()

    def _slices(self, candidates: list[Candidate]) -> None:
        self._screen.step(
            "ResourceSlices are published",
            "The node program writes its devices, with attributes and capacities, into the API server; the node's name is the name of their pool.",
            who="the node program, for kube-scheduler to read",
        )
        published = self._client.list(RESOURCE_SLICES).items
        self._screen.lines(*(f"ResourceSlice {found.metadata.name}: {len(found.spec.devices)} devices of {found.spec.driver}" for found in published))
        self._screen.table(["device", "memory", *COLUMNS], [cells(candidate.device) for candidate in candidates])
        if candidates:
            self._screen.lines(f"What selectors can ask, with the values of {candidates[0].device.name}:", *selectable(candidates[0]))

    def _install(self, objects: list[TopLevel]) -> ResourceClaimTemplate:
        self._screen.step(
            "DeviceClass and ResourceClaimTemplate are created",
            "A class says which devices are meant at all, a template what a pod asks of them; both select by CEL expressions.",
            who=f"an admin and a user, by `kubectl apply -f` of {' and '.join(MANIFESTS)}",
        )
        for obj in objects:
            manifests.create(self._client, obj)
            self._screen.lines(f"{obj}")
            if isinstance(obj, DeviceClass):
                self._screen.lines(*(f"  selector: {one_line(selector)}" for selector in obj.spec.selectors))
            if isinstance(obj, ResourceClaimTemplate):
                for name, request in requests(obj):
                    self._screen.lines(f"  request {name}: {request.count or 1} of class {request.device_class_name}")
                    self._screen.lines(*(f"    selector: {one_line(selector)}" for selector in request.selectors))
        return next(obj for obj in objects if isinstance(obj, ResourceClaimTemplate))

    def _claim(self, template: ResourceClaimTemplate) -> tuple[Pod, ResourceClaim]:
        self._screen.step(
            "A pod asks for a GPU, a ResourceClaim is created",
            "The pod names the template; a claim of its own is made from it.",
            who="a user creates the pod, kube-controller-manager the claim",
        )
        wanted = Pod(
            metadata=ObjectMeta(name=POD, namespace=template.metadata.namespace),
            spec=PodSpec(
                resource_claims=[PodResourceClaim("gpu", resource_claim_template_name=template.metadata.name)],
                containers=[Container("main", resources=ResourceRequirements([ContainerResourceClaim("gpu")]))],
            ),
        )
        pod = self._control_plane.create_claims(self._client.create(PODS, wanted))
        (claim,) = self._control_plane.claims(pod)
        self._screen.lines(f"{pod}", f"{claim}, UID {claim.metadata.uid}: not allocated")
        return pod, claim

    def _selectors(self, claim: ResourceClaim, candidates: list[Candidate]) -> list[tuple[str, DeviceReport]]:
        self._screen.step(
            "Selectors are evaluated",
            "Every expression of class and claim must be true of a device; "
            "an error on a device that the search comes to stops the scheduling of the whole pod.",
            who="kube-scheduler, which evaluates the same CEL, but stops at the first device that matches; here all are shown",
        )
        classes = {found.metadata.name: found for found in self._client.list(DEVICE_CLASSES).items}
        everything: list[tuple[str, DeviceReport]] = []
        for name, request in requests(claim):
            if request.device_class_name not in classes:
                continue
            reports = report(candidates, classes[request.device_class_name], claim, request)
            everything += [(name, one) for one in reports]
            self._screen.lines(f"request {name}:" if reports else f"request {name}: there are no devices")
            self._answers(reports)
        return everything

    def _answers(self, reports: list[DeviceReport]) -> None:
        if not reports:
            return
        headings = [f"{answer.owner.split()[0]} #{answer.index}" for answer in reports[0].answers]
        rows = [[one.device.device, *("error" if answer.error else str(answer.value).lower() for answer in one.answers)] for one in reports]
        self._screen.table(["device", *headings], rows)
        errors = [answer for one in reports for answer in one.answers if answer.error]
        failures = Counter(f"{answer.owner}: selector #{answer.index} fails: {answer.cause}" for answer in errors)
        self._screen.lines(*(f"{text} ({devices(count)})" for text, count in failures.items()))

    def _allocation(self, pod: Pod, claim: ResourceClaim) -> Pod:
        self._screen.step(
            "Allocation",
            "The first free device that matches is written into the claim's status, and the claim is reserved for the pod.",
            who="kube-scheduler, which then binds the pod to the node",
        )
        pod = self._control_plane.schedule(pod, NODE)
        allocated = self._client.get(RESOURCE_CLAIMS, claim.metadata.name, claim.metadata.namespace)
        for result in allocated.status.allocation.devices.results if allocated.status.allocation else ():
            self._screen.lines(f"request {result.request}: device {result.device} of pool {result.pool}, driver {result.driver}")
        self._screen.lines(*(f"reserved for pod {pod.metadata.namespace}/{consumer.name}" for consumer in allocated.status.reserved_for))
        return pod

    def _nothing_fits(self, error: ClaimError, candidates: list[Candidate], reports: list[tuple[str, DeviceReport]]) -> None:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for request, one in reports:
            groups[f"request {request}: {verdict(one)}"].append(one.device.device)
        details = [line for what, names in groups.items() for line in (f"{devices(len(names))}, {what}", f"  {' '.join(names)}")]
        if not candidates:
            details = [f"The pool of node {NODE} has no devices."]
        self._screen.failure("No device can be allocated: the pod stays Pending. The scheduler's reason:", str(error), "", *details)

    def _prepare(self, pod: Pod) -> dict[str, StartedContainer]:
        self._screen.step(
            "NodePrepareResources: the device is prepared",
            "The driver reads the claim, notes it in its journal, writes a CDI spec for it and answers with the CDI names.",
            who="the kubelet of the chosen node calls the driver before it starts the pod",
        )
        containers = self._node.start_pod(pod)
        self._calls()
        return containers

    def _cdi_spec(self, pod: Pod) -> None:
        self._screen.step(
            "The CDI spec tells the container runtime what the devices need",
            "The Container Device Interface (CDI) is how the kubelet hands devices to the runtime: by name, explained in a file.",
            who="the driver writes it to /var/run/cdi, the kubelet passes the names on",
        )
        for path in sorted(self._node.settings.cdi_dir.glob("*.json")):
            self._screen.lines(f"{path}:")
            spec = json.loads(path.read_text())
            self._screen.json(spec if self._full else with_one_mount(spec))
        for container in pod.spec.containers:
            names = self._node.kubelet.cdi_device_ids(pod, container)
            self._screen.lines(f"CDI names of container {container.name}:", *(f"  {name}" for name in names))

    def _container(self, containers: dict[str, StartedContainer]) -> None:
        self._screen.step(
            "The container starts",
            "What the specs of its CDI names say is added to the container, and nothing of any other GPU.",
            who="containerd or CRI-O",
        )
        for name, container in containers.items():
            self._screen.lines(f"environment of container {name}:")
            self._screen.verbatim(*container.environment)
            self._screen.lines(f"device nodes of container {name}:")
            self._screen.lines(*(f"  {node.path}  {node.type} {node.major}:{node.minor}  {node.permissions}" for node in container.device_nodes))
            told = [mount.container_path for mount in container.mounts if mount.container_path.startswith(CONTAINER_DIRECTORY)]
            files = [mount.container_path for mount in container.mounts if mount.container_path not in told]
            self._screen.lines(f"mounted into container {name}: {len(files)} files of the driver")
            if self._full:
                self._screen.lines(*(f"  {path}" for path in files))
            self._screen.lines(f"container {name} can read what its devices are in:", *(f"  {path}" for path in told))

    def _unprepare(self, pod: Pod, claim: ResourceClaim) -> None:
        self._screen.step(
            "The pod ends: NodeUnprepareResources",
            "When the last container has ended, the driver removes the CDI spec and the journal's entry.",
            who="the kubelet calls the driver, and lets the pod go only when that succeeded",
        )
        self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace)
        self._node.kubelet.unprepare_pod(pod)
        self._calls()
        left = [path.name for path in self._node.settings.cdi_dir.rglob("*") if claim.metadata.uid in path.name]
        self._screen.lines(f"CDI specs of the claim: {', '.join(left) or 'none'}")

    def _release(self, pod: Pod, claim: ResourceClaim) -> None:
        self._screen.step(
            "The claim is released",
            "Its allocation is cleared, so the device is free for others; a claim that was made for the pod is deleted with it.",
            who="kube-controller-manager",
        )
        self._control_plane.release(pod)
        self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace_period=0)
        left = [found.metadata.name for found in self._client.list(RESOURCE_CLAIMS).items]
        self._screen.lines(f"{claim}: {'still there' if claim.metadata.name in left else 'gone'}", f"{pod}: gone")

    def _end(self) -> None:
        self._screen.step(
            "The node program ends",
            "Its sockets go away, so the kubelet forgets the driver; the ResourceSlices stay 30 s for a new instance, then the kubelet deletes them.",
            who="a rolling update, a drain or an uninstallation",
        )
        self._node.stop_program()
        registered = [plugin.driver for plugin in self._node.kubelet.registry.plugins()]
        self._screen.lines(f"registered drivers: {', '.join(registered) or 'none'}")

    def _calls(self) -> None:
        """What the kubelet has asked the driver since this was last told."""
        for call in self._node.kubelet.calls[self._calls_told :]:
            self._screen.lines(f"call of {call.method}")
            self._screen.json(call.request, label="request: ")
            self._screen.json(call.response, label="answer: ")
            self._calls_told += 1
