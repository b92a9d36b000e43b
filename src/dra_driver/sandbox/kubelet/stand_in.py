"""A kubelet as far as a DRA driver sees it (contract: pkg/kubelet/cm/dra and pkg/kubelet/pluginmanager): the behaviour of Kubernetes 1.37, where
`release` does not say otherwise.

There is one way in and out for a pod: `prepare_pod`, `cdi_device_ids` for each container, `unprepare_pod`. Everything that a driver is asked goes
over the sockets that it placed into the registry directory, and is kept in `calls`. The stand-in knows nothing of GPUs, and no pods but those that it
is given.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self

from dra_driver.errors import ApiError, ClaimError, ClaimRetryError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import Container, Pod, PodResourceClaim
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, ResourceClaim
from dra_driver.sandbox.kubelet.calls import Call, CallRecorder
from dra_driver.sandbox.kubelet.claims import ClaimCache, ClaimInfo
from dra_driver.sandbox.kubelet.health import HealthCache
from dra_driver.sandbox.kubelet.plugin import ClaimReference, DraPlugin, PreparedDevice
from dra_driver.sandbox.kubelet.pod_resources import PodResourcesServer
from dra_driver.sandbox.kubelet.registry import PluginRegistry
from dra_driver.sandbox.kubelet.release import RELEASES
from dra_driver.sandbox.kubelet.slice_wiper import SliceWiper
from dra_driver.sandbox.kubelet.timing import Timing

log = logging.getLogger(__name__)


class StandInKubelet:
    """One node's kubelet. `root` is its directory (of a real one: /var/lib/kubelet); plugins register below `registry_directory`.

    `release` is one of RELEASES. `health` is what it knows of the health of devices.
    """

    def __init__(self, client: Client, node_name: str, root: Path, *, timing: Timing | None = None, release: str = "1.37") -> None:
        self.registry_directory = root / "plugins_registry"
        self.plugins_directory = root / "plugins"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self._client = client
        self._node_name = node_name
        self._timing = timing or Timing()
        self._release = RELEASES[release]
        self.health = HealthCache()
        self._recorder = CallRecorder()
        self._claims = ClaimCache(root)
        self._pods: dict[str, Pod] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._registry: PluginRegistry
        self._wiper: SliceWiper
        self._pod_resources: PodResourcesServer

    @property
    def calls(self) -> list[Call]:
        """Every call to a plugin since the object was made, also across restarts."""
        return self._recorder.calls

    @property
    def registry(self) -> PluginRegistry:
        """The plugins of the running kubelet."""
        return self._registry

    def start(self) -> None:
        """Reads the checkpoint, starts to wipe the node's slices and to look for plugins. HostError: the checkpoint is damaged."""
        for directory in (self.registry_directory, self.plugins_directory):
            directory.mkdir(parents=True, exist_ok=True)
        self._claims.load()
        self._registry = PluginRegistry(
            self.registry_directory, recorder=self._recorder, timing=self._timing, release=self._release, health=self.health
        )
        self._wiper = SliceWiper(self._client, self._node_name, timing=self._timing)
        self._wiper.wipe()
        self._pod_resources = PodResourcesServer(self.pod_resources_socket, lambda: list(self._pods.values()), self._claims_of)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_for_plugins, name="kubelet-registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends as a killed kubelet does: connections drop, pods and drivers live on."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._pod_resources.close()
        self._wiper.close()
        self._registry.close()

    def restart(self) -> None:
        """What is in memory is lost, plugins are found anew, the node's slices are wiped; running pods are not prepared again."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_registered(self, driver: str, timeout: float = 10.0) -> bool:
        """Waits until an instance of the driver is registered, knows it and is connected."""
        return self._registry.wait_for(lambda: self._registry.is_registered(driver), timeout)

    def wait_wiped(self, timeout: float = 10.0) -> bool:
        """Waits until the slices that are to be wiped are gone."""
        return self._wiper.wait(timeout)

    def prepare_pod(self, pod: Pod) -> None:
        """What happens before a pod's sandbox is made.

        ClaimRetryError with the text of the FailedPrepareDynamicResources event; the kubelet repeats it until it succeeds, and so may the caller.
        """
        self._pods[pod.metadata.uid] = pod
        self._with_prefix("prepare dynamic resources", lambda: self._prepare(pod))

    def unprepare_pod(self, pod: Pod) -> None:
        """What happens after a pod's last container has ended. ClaimRetryError: the pod stays Terminating, and the kubelet repeats it."""
        self._with_prefix("unprepare dynamic resources", lambda: self._unprepare(pod.metadata.uid))
        self._pods.pop(pod.metadata.uid, None)

    def unprepare_inactive(self, active_pods: Collection[str]) -> None:
        """One round of the kubelet's minutely clean-up: unprepares for all pods but these (by UID). A failure is left to the next round."""
        with self._claims.locked() as claims:
            inactive = {pod for info in claims.values() for pod in info.pods} - set(active_pods)
        for pod in inactive:
            try:
                self._unprepare(pod)
            except ClaimError as error:
                log.info("clean-up failed", extra={"pod": pod, "error": str(error)})

    def cdi_device_ids(self, pod: Pod, container: Container) -> list[str]:
        """The CDI names that the runtime is given for a container of a prepared pod."""
        found: list[str] = []
        with self._claims.locked() as claims:
            for (namespace, name), requests in _uses(pod, container).items():
                info = claims.get((namespace, name))
                if info is None:
                    raise ClaimRetryError(f"internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}")
                found += [cdi_id for request in requests for cdi_id in info.cdi_device_ids(request)]
        return found

    def prepared_devices(self, namespace: str, claim: str) -> dict[str, tuple[PreparedDevice, ...]]:
        """What each driver answered for a claim; empty if no pod of this node uses it."""
        with self._claims.locked() as claims:
            info = claims.get((namespace, claim))
            return dict(info.drivers) if info else {}

    def _claims_of(self, pod: Pod, container: Container) -> list[ClaimInfo]:
        with self._claims.locked() as claims:
            found = [claims.get(key) for key in _uses(pod, container)]
        return [] if None in found else [info for info in found if info is not None]

    def _look_for_plugins(self) -> None:
        while True:
            self._registry.reconcile()
            self._wiper.watch(self._registry.plugins())
            if self._stop.wait(self._timing.scan):
                return

    @staticmethod
    def _with_prefix(prefix: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (ClaimError, ApiError) as error:
            raise ClaimRetryError(f"{prefix}: {error}") from error

    def _prepare(self, pod: Pod) -> None:
        wanted = self._read_claims(pod)
        plugins = {driver: self._registry.plugin(driver) for info in wanted for driver in info.drivers}
        pending = self._remember(pod, wanted)
        batches: dict[str, list[ClaimReference]] = defaultdict(list)
        for info in pending:
            for driver in info.drivers:
                batches[driver].append(info.reference)
        for driver, references in batches.items():
            self._prepare_batch(plugins[driver], references, pending)
        with self._claims.locked():
            for info in pending:
                info.prepared = True
            self._claims.save()

    def _prepare_batch(self, plugin: DraPlugin, references: list[ClaimReference], pending: list[ClaimInfo]) -> None:
        devices = plugin.prepare(references)
        with self._claims.locked():
            for info in pending:
                if info.reference.uid in devices:
                    info.drivers[plugin.driver] = devices[info.reference.uid]

    def _read_claims(self, pod: Pod) -> list[ClaimInfo]:
        infos: list[ClaimInfo] = []
        for pod_claim in pod.spec.resource_claims:
            name, generated = _claim_name(pod, pod_claim)
            if name is None:
                continue
            try:
                claim = self._client.get(RESOURCE_CLAIMS, name, namespace=pod.metadata.namespace)
            except ApiError as error:
                raise ClaimRetryError(f"fetch ResourceClaim {name}: {error}") from error
            _check_use(pod, claim, generated=generated)
            infos.append(ClaimInfo.of(claim))
        return infos

    def _remember(self, pod: Pod, wanted: list[ClaimInfo]) -> list[ClaimInfo]:
        """Adds the pod to its claims; those that are not prepared yet."""
        pending: list[ClaimInfo] = []
        with self._claims.locked() as claims:
            for fresh in wanted:
                key = (fresh.reference.namespace, fresh.reference.name)
                info = claims.setdefault(key, fresh)
                if info.reference.uid != fresh.reference.uid:
                    text = f"with same name {info.reference.name} and different UID {info.reference.uid} still exists (previous pod force-deleted?!)"
                    raise ClaimRetryError(f"old ResourceClaim {text}")
                if info.unpreparing:
                    raise ClaimRetryError(f"ResourceClaim {info.reference.name} is being unprepared")
                info.pods.add(pod.metadata.uid)
                self._claims.save()
                if not info.prepared:
                    pending.append(info)
        return pending

    def _unprepare(self, pod_uid: str) -> None:
        batches: dict[str, list[ClaimReference]] = defaultdict(list)
        last: list[ClaimReference] = []
        with self._claims.locked() as claims:
            for info in claims.values():
                if pod_uid not in info.pods:
                    continue
                if len(info.pods) > 1:
                    info.pods.discard(pod_uid)
                    continue
                info.unpreparing = True
                last.append(info.reference)
                for driver in info.drivers:
                    batches[driver].append(info.reference)
        for driver, references in batches.items():
            self._registry.plugin(driver).unprepare(references)
        with self._claims.locked() as claims:
            for reference in last:
                claims.pop((reference.namespace, reference.name), None)
            self._claims.save()


def _uses(pod: Pod, container: Container) -> dict[tuple[str, str], list[str]]:
    """The claims that a container uses, by namespace and name, and which requests of each ("" for all)."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod_claim in pod.spec.resource_claims:
        requests = [use.request for use in container.resources.claims if use.name == pod_claim.name]
        name, _ = _claim_name(pod, pod_claim)
        if requests and name is not None:
            found[pod.metadata.namespace, name] = requests
    return found


def _claim_name(pod: Pod, pod_claim: PodResourceClaim) -> tuple[str | None, bool]:
    """The claim's name (None: the pod needs none) and whether it was generated for the pod."""
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if pod_claim.resource_claim_name is not None:
        return pod_claim.resource_claim_name, False
    if pod_claim.resource_claim_template_name is None:
        raise ClaimRetryError(f'{where}, spec.resourceClaim "{pod_claim.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == pod_claim.name:
            return status.resource_claim_name, True
    raise ClaimRetryError(f"{where}: ResourceClaim not created yet")


def _check_use(pod: Pod, claim: ResourceClaim, *, generated: bool) -> None:
    meta = claim.metadata
    controller = next((owner for owner in meta.owner_references if owner.controller), None)
    if generated and (controller is None or controller.uid != pod.metadata.uid):
        names = f"ResourceClaim {meta.namespace}/{meta.name} was not created for Pod {pod.metadata.namespace}/{pod.metadata.name}"
        raise ClaimRetryError(f"{names} (Pod is not owner)")
    if pod.metadata.uid not in {consumer.uid for consumer in claim.status.reserved_for}:
        who = f"pod {pod.metadata.name} ({pod.metadata.uid})"
        raise ClaimRetryError(f"{who} is not allowed to use ResourceClaim {meta.name} ({meta.uid})")
