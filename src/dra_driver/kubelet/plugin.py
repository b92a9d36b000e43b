"""A kubelet plugin: sockets, registration, claims and slices of one driver, put together and in the right order.

Start: place among the instances → journal, rebuilt if it was lost → repaired CDI files → known health → slices → service socket → registrar socket,
so that the kubelet never finds a registrar whose service is not there. Stop: the registrar's socket goes first, the service ends when the kubelet has
let go of it, then the loops. Slices stay for the next instance.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from dra_driver.daemon.boot import boot_id
from dra_driver.daemon.probes import Probes
from dra_driver.daemon.signals import EndSignals
from dra_driver.daemon.supervisor import STUCK, Loop, Supervisor
from dra_driver.daemon.turns import Turns
from dra_driver.errors import HostError, JournalError, SettingsError, StoppedError
from dra_driver.k8s import names
from dra_driver.k8s.client import Client
from dra_driver.kubelet import health_service, publisher, service, sweep
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as registration_pb2_grpc
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import ClaimKeeper
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.device_users import DeviceUsers
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.health import Health, HealthBoard
from dra_driver.kubelet.health_service import HealthStreams
from dra_driver.kubelet.host_watch import HostWatch
from dra_driver.kubelet.instance import Instance
from dra_driver.kubelet.journal import Journal
from dra_driver.kubelet.lease import Lease
from dra_driver.kubelet.metrics import CallMeter, PluginMetrics
from dra_driver.kubelet.pod_resources import PodClaim, claims_of_pods
from dra_driver.kubelet.presence import Presence
from dra_driver.kubelet.publisher import Publisher
from dra_driver.kubelet.quarantine import open_journal
from dra_driver.kubelet.rebuild import Rebuild
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import Place, SocketServer
from dra_driver.kubelet.socket_probes import registrar_probe, service_probe
from dra_driver.kubelet.strangers import Strangers
from dra_driver.kubelet.sweep import Sweep

KUBELET_DIRECTORY = Path("/var/lib/kubelet")
CDI_DIRECTORY = Path("/var/run/cdi")

REGISTRAR_WORKERS = 2
STOP_GRACE = 5.0
STREAMS_GRACE = 0.5  # seconds; only streams are open when the kubelet has let go, and they never end by themselves


def sleep(seconds: float) -> bool:
    """For a program that is not told to end while it starts."""
    time.sleep(seconds)
    return False


@dataclass(frozen=True)
class PluginPaths:
    """Directories that plugin, kubelet and runtime share; each must have the same path for all of them.

    `plugin` holds service socket and journal, `registry` is watched by the kubelet, `cdi` by the container runtime; `pod_resources` is the socket of
    the kubelet's PodResources API, which is asked when the journal was lost.
    """

    plugin: Path
    registry: Path
    cdi: Path
    pod_resources: Path | None = None

    @classmethod
    def standard(cls, driver: str) -> PluginPaths:
        """Where a driver's directories are unless kubelet and runtime were told otherwise."""
        kubelet = KUBELET_DIRECTORY
        return cls(kubelet / "plugins" / driver, kubelet / "plugins_registry", CDI_DIRECTORY, kubelet / "pod-resources" / "kubelet.sock")


class KubeletPlugin:
    """One driver on one node. Stopping it closes `client`. Without `paths` the directories are the standard ones.

    `instance` is the UID of this pod: two of them may be alive at a time, one to take over from the other; without it there is one only.
    `versions` are the DRAPlugin versions to serve, the most wanted first; with `health`, DRAResourceHealth is served too. `processes` is the host's
    /proc, without which no device of a lost claim is ever freed, and `sweep_grace` the number of seconds after which one may be. `interceptors` see
    every call of the kubelet. `probes` and `metrics` are for the program's port. SettingsError: the driver's name or the node's is none.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        *,
        node: str,
        paths: PluginPaths | None = None,
        instance: str = "",
        versions: Sequence[str] = service.VERSIONS,
        health: HealthBoard | None = None,
        processes: Path | None = None,
        sweep_grace: float = sweep.GRACE,
        interceptors: Sequence[grpc.ServerInterceptor] = (),
    ) -> None:
        if problem := names.driver_name_error(driver.name or ""):
            raise SettingsError(f"driver name {driver.name!r} ({type(driver).__name__}.name): {problem}")
        if problem := names.dns_subdomain_error(node):
            raise SettingsError(f"node {node!r}: must be the name of this node's Node object: {problem}")
        self._driver = driver
        self._client = client
        self._node = node
        self._paths = paths = paths or PluginPaths.standard(driver.name)
        self._versions = versions
        self._board = health
        self._users = DeviceUsers(processes)
        self._sweep_grace = sweep_grace
        self._undo = ExitStack()
        self.probes = Probes()
        self.metrics = PluginMetrics()
        self._supervisor = Supervisor(probes=self.probes)
        self._loops: dict[str, Loop] = {}
        self.instance = Instance(driver.name, instance, plugin=paths.plugin, registry=paths.registry)
        sockets = self.instance.sockets
        self._service = SocketServer(sockets.service, workers=service.WORKERS, interceptors=[CallMeter(self.metrics), *interceptors])
        self._registry = SocketServer(sockets.registrar, workers=REGISTRAR_WORKERS, interceptors=interceptors)
        services = [*versions, *(health_service.VERSIONS if health else ())]
        self.registrar = Registrar(driver.name, sockets.service, services, accepted=self._accepted)
        self._health = HealthServicer()
        self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self.publisher = Publisher(client, driver=driver.name, node=node, leads=self.leads)
        self.presence = Presence(
            self._service,
            self._registry,
            self.registrar,
            Strangers(driver.name, paths.registry, self._our_registrars),
            probes={self._service: service_probe(versions), self._registry: registrar_probe(sockets.registrar, sockets.service)},
            lost=self.instance.problem,
            changed=self.publisher.wake,
            renewed=lambda path: self.metrics.renewals.add("service" if path == sockets.service else "registrar"),
        )
        self._streams: HealthStreams | None = None
        self._lease: Lease | None = None
        self._database: Database | None = None
        self._journal: Journal | None = None
        self._rebuild: Rebuild | None = None
        self._describe()

    def add_loop(self, name: str, loop: Loop) -> None:
        """A loop of the driver, which runs as long as the plugin does: to be added before `start`."""
        self._loops[name] = loop

    def start(self, pause: Callable[[float], bool] = sleep) -> None:
        """Serves and registers. HostError, InstanceConflictError or JournalError when this host cannot be used; nothing is left behind then.

        Where the journal was lost it waits until the API server tells of the claims that were in it: `pause` waits so many seconds and returns
        whether the program is to end; StoppedError is raised then. Where another driver has our name nothing of ours is published or served until it
        has gone. `/readyz` tells of both.
        """
        try:
            self._start(pause)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Deregisters, lets running calls end, and frees the place for another instance. Undoes `start` step by step, the last one first."""
        self._undo.close()

    def run(self) -> None:
        """Starts, serves until SIGTERM or SIGINT, and stops. For the main thread. Raises what `start` raises."""
        with EndSignals() as end:
            try:
                self.start(end.within)
            except StoppedError:
                return
            end.wait()
            self.stop()

    def leads(self) -> bool:
        """Whether this instance publishes, sweeps and watches health."""
        return not self.presence.stranger and (self._lease is None or self._lease.leads())

    def _start(self, pause: Callable[[float], bool]) -> None:
        undo, watch = self._undo.callback, self._supervisor.start
        with self.instance.entering():
            undo(self.instance.leave)
            database = self._database = open_journal(self._paths.plugin / "state.db", alone=lambda: self.instance.alone, observer=self.metrics)
            undo(database.close)
            journal = self._journal = Journal(database, boot_id=boot_id(), related=self._driver.related)
            turns = Turns(self._paths.plugin / "claims.lock")
            undo(turns.close)
            cdi = CdiFiles(self._paths.cdi, driver=self._driver.name, kind=self._driver.cdi_kind)
            cdi.check_writable()
            _check_registry(self._paths.registry)
            self._rebuild = Rebuild(self._driver, self._client, journal, cdi, turns, pod_resources=self._paths.pod_resources, observer=self.metrics)
            self._rebuild.run(pause)
        keeper = ClaimKeeper(self._driver, self._client, journal, cdi, turns=turns, observer=self.metrics)
        host_watch = HostWatch(self._driver, cdi, keeper.repair)
        keeper.restore()
        self.presence.look_around()
        self._enter_lease(database)
        undo(self._supervisor.stop, STOP_GRACE)
        watch("sweep", self._sweep(journal, keeper).run)
        watch("watch-host", host_watch.run)
        if self._board is not None:
            self._board.open(database, self.leads)  # now, so that nothing is published without the taints that it had
            undo(self._board.close)
            watch("watch-health", self._board.watch)
        for name, loop in self._loops.items():
            watch(name, loop)
        watch("watch-slices", self.publisher.watch, limit=math.inf)
        watch("publish-slices", self.publisher.publish, wake=self._interrupt, limit=publisher.RESYNC + STUCK)
        if self._lease is not None:
            watch("lease", self._lease.run, wake=self._lease.ring)
        self._service.add(partial(service.add_to, keeper=keeper, versions=self._versions))
        self._service.add(partial(health_pb2_grpc.add_HealthServicer_to_server, self._health))
        self._registry.add(partial(registration_pb2_grpc.add_RegistrationServicer_to_server, self.registrar))
        undo(self._service.stop, STREAMS_GRACE)
        if self._board is not None:
            self._streams = HealthStreams(self._board)
            self._service.add(self._streams.add_to)
            undo(self._streams.close)
        undo(self._registry.stop, 0)
        undo(self._leave)
        self.presence.appear()
        watch("sockets", self.presence.keep)

    def _sweep(self, journal: Journal, keeper: ClaimKeeper) -> Sweep:
        return Sweep(
            self._driver,
            self._client,
            journal,
            keeper,
            self._users,
            node=self._node,
            leads=self.leads,
            grace=self._sweep_grace,
            pods=self._claims_of_pods,
            observer=self.metrics,
        )

    def _claims_of_pods(self) -> list[PodClaim]:
        """What the kubelet tells of the claims of running pods, nothing where it has no socket for that. HostError when it does not answer."""
        socket = self._paths.pod_resources
        if socket is None or not socket.exists():
            return []
        return claims_of_pods(socket, self._driver.name)

    def _leave(self) -> None:
        self.presence.leave(lambda: bool(self.metrics.running), successor=bool(self.instance.siblings()))
        self._health.enter_graceful_shutdown()

    def _enter_lease(self, database: Database) -> None:
        if self.instance.uid:
            registered = self.registrar.registered.is_set
            self._lease = Lease(database, self.instance.uid, lives=self.instance.lives, registered=registered, changed=self.publisher.wake)
            self._undo.callback(self._lease.release)
            self._lease.take()

    def _accepted(self) -> None:
        if self._lease is not None:
            self._lease.ring()

    def _interrupt(self) -> None:
        """When everything is to stop, calls that wait for the API server have no purpose any more."""
        self.publisher.wake()
        self._client.close()

    def _our_registrars(self) -> set[Path]:
        """Our own, where the file is ours, and those of the instances beside us."""
        siblings = {names.registrar for names in self.instance.siblings().values()}
        return siblings | ({self._registry.path} if self._registry.place() is Place.OURS else set())

    def _describe(self) -> None:
        """What the probes ask and what is measured of the parts."""
        self.presence.add_to(self.probes)
        self.probes.add_fault("journal", lambda: self._database.damage if self._database else "")
        self.probes.add_condition("journal", lambda: self._rebuild.problem if self._rebuild else "")
        self.probes.add_condition("slices", self._slices_problem)
        self.probes.add_condition("lease", lambda: self._lease.problem() if self._lease else "")
        gauge, counted = self.metrics.gauge, self.metrics.counted
        gauge("prepared_claims", "claims that are prepared on this node", self._prepared_claims)
        gauge("registered", "1 while the kubelet has accepted the registration", self.registrar.registered.is_set)
        counted("registration_refusals", "registrations that the kubelet refused", lambda: {(): self.registrar.refusals})
        gauge("other_driver", "1 while another driver of our name is registered on this node", lambda: bool(self.presence.stranger))
        if (board := self._board) is not None:
            gauge("devices", "devices whose health is watched, by what it is", lambda: _count(board), "health")
            gauge("health_streams", "open streams of device health; the kubelet has one", lambda: self._streams.count if self._streams else 0)
        gauge("leads", "1 while this instance publishes, sweeps and watches health", self.leads)
        self.publisher.add_to(self.metrics)
        restarts = self._supervisor.restarts
        counted("loop_restarts", "loops that failed and were started again", lambda: {(name,): times for name, times in restarts.items()}, "loop")

    def _slices_problem(self) -> str:
        if self.presence.stranger or (self._lease is not None and not self._lease.held):
            return ""  # not ours to publish
        return self.publisher.problem or ("" if self.publisher.published.is_set() else "not published yet")

    def _prepared_claims(self) -> float:
        try:
            return math.nan if self._journal is None else self._journal.count()
        except JournalError:
            return math.nan


def _count(board: HealthBoard) -> dict[tuple[str, ...], float]:
    found = Counter(str(device.health) for device in board.devices())
    return {(str(health),): found[str(health)] for health in Health}


def _check_registry(directory: Path) -> None:
    """The kubelet makes this directory; if we made it, we would wait for a kubelet that looks elsewhere."""
    found = "nothing" if not directory.exists() else "" if directory.is_dir() else "a file"
    if not found and not os.access(directory, os.W_OK | os.X_OK):
        found = "one that is not writable"
    if found:
        raise HostError(
            f"registry directory {directory}: need a directory that is writable for the driver, found {found}; "
            "the kubelet makes it, is it the kubelet's?"
        )
