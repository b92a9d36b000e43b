"""A kubelet plugin: sockets, registration, claims and slices of one driver, put together and in the right order.

Start: journal → repaired CDI files → known health → slices → service socket → registrar socket, so that the kubelet never finds a registrar whose
service is not there. Stop is the reverse: the registrar socket goes first, then running calls end. Slices stay for the next instance.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from dra_driver.daemon.signals import EndSignals
from dra_driver.daemon.supervisor import Loop, Supervisor
from dra_driver.daemon.turns import Turns
from dra_driver.errors import HostError, InstanceConflictError
from dra_driver.k8s.client import Client
from dra_driver.kubelet import health_service, service
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import ClaimKeeper
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.device_users import DeviceUsers
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.health import HealthBoard
from dra_driver.kubelet.health_service import HealthStreams
from dra_driver.kubelet.host_watch import HostWatch
from dra_driver.kubelet.journal import Journal
from dra_driver.kubelet.publisher import Publisher
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import SocketServer
from dra_driver.kubelet.sweep import Sweep

KUBELET_DIRECTORY = Path("/var/lib/kubelet")
CDI_DIRECTORY = Path("/var/run/cdi")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

REGISTRAR_WORKERS = 2
STOP_GRACE = 5.0


@dataclass(frozen=True)
class PluginPaths:
    """Directories that plugin, kubelet and runtime share; each must have the same path for all of them.

    `plugin` holds service socket and journal, `registry` is watched by the kubelet, `cdi` by the container runtime.
    """

    plugin: Path
    registry: Path
    cdi: Path

    @classmethod
    def standard(cls, driver: str) -> PluginPaths:
        """Where a driver's directories are unless kubelet and runtime were told otherwise."""
        return cls(KUBELET_DIRECTORY / "plugins" / driver, KUBELET_DIRECTORY / "plugins_registry", CDI_DIRECTORY)


class KubeletPlugin:
    """One driver on one node. Stopping it closes `client`. Without `paths` the directories are the standard ones.

    `versions` are the DRAPlugin versions to serve, the most wanted first; with `health`, DRAResourceHealth is served too. `processes` is the host's
    /proc, without which no device of a lost claim is ever freed; `interceptors` see every call of the kubelet.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        *,
        node: str,
        paths: PluginPaths | None = None,
        versions: Sequence[str] = service.VERSIONS,
        health: HealthBoard | None = None,
        processes: Path | None = None,
        interceptors: Sequence[grpc.ServerInterceptor] = (),
    ) -> None:
        self._driver = driver
        self._client = client
        self._node = node
        self._paths = paths = paths or PluginPaths.standard(driver.name)
        self._versions = versions
        self._board = health
        self._users = DeviceUsers(processes)
        self._supervisor = Supervisor()
        self._loops: dict[str, Loop] = {}
        self._undo = ExitStack()
        self._service = SocketServer(paths.plugin / "dra.sock", workers=service.WORKERS, interceptors=interceptors)
        self._registry = SocketServer(paths.registry / f"{driver.name}-reg.sock", workers=REGISTRAR_WORKERS, interceptors=interceptors)
        self.registrar = Registrar(driver.name, self._service.path, [*versions, *(health_service.VERSIONS if health else ())])
        self.publisher = Publisher(client, driver=driver.name, node=node)

    def add_loop(self, name: str, loop: Loop) -> None:
        """A loop of the driver, which runs as long as the plugin does: to be added before `start`."""
        self._loops[name] = loop

    def start(self) -> None:
        """Serves and registers. HostError, InstanceConflictError or JournalError when this host cannot be used; nothing is left behind then."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Deregisters, lets running calls end, and frees the place for another instance. Undoes `start` step by step, the last one first."""
        self._undo.close()

    def run(self) -> None:
        """Starts, serves until SIGTERM or SIGINT, and stops. For the main thread. Raises what `start` raises."""
        with EndSignals() as end:
            self.start()
            end.wait()
            self.stop()

    def _start(self) -> None:
        undo = self._undo.callback
        undo(os.close, _lock_directory(self._paths.plugin))
        database = Database(self._paths.plugin / "state.db")
        undo(database.close)
        journal = Journal(database, boot_id=BOOT_ID.read_text().strip(), related=self._driver.related)
        turns = Turns(self._paths.plugin / "claims.lock")
        undo(turns.close)
        cdi = CdiFiles(self._paths.cdi, driver=self._driver.name, kind=self._driver.cdi_kind)
        cdi.check_writable()
        _check_registry(self._paths.registry)
        keeper = ClaimKeeper(self._driver, self._client, journal, cdi, turns=turns)
        host_watch = HostWatch(self._driver, cdi, keeper.repair)
        keeper.restore()
        undo(self._supervisor.stop, STOP_GRACE)
        sweep = Sweep(self._driver, self._client, journal, keeper, self._users, node=self._node)
        self._supervisor.start("sweep", sweep.run)
        self._supervisor.start("watch-host", host_watch.run)
        if self._board is not None:
            self._board.open(database)  # now, so that nothing is published without the taints that it had
            undo(self._board.close)
            self._supervisor.start("watch-health", self._board.watch)
        for name, loop in self._loops.items():
            self._supervisor.start(name, loop)
        self._supervisor.start("watch-slices", self.publisher.watch)
        self._supervisor.start("publish-slices", self.publisher.publish, wake=self._interrupt)
        service.add_to(self._service.grpc, keeper, self._versions)
        undo(self._service.stop, STOP_GRACE)
        if self._board is not None:
            streams = HealthStreams(self._board)
            streams.add_to(self._service.grpc)
            undo(streams.close)
        self._service.start()
        plugin_registration_pb2_grpc.add_RegistrationServicer_to_server(self.registrar, self._registry.grpc)
        undo(self._registry.stop, 0)
        self._registry.start()

    def _interrupt(self) -> None:
        """When everything is to stop, calls that wait for the API server have no purpose any more."""
        self.publisher.wake()
        self._client.close()


def _check_registry(directory: Path) -> None:
    """The kubelet makes this directory; if we made it, we would wait for a kubelet that looks elsewhere."""
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise HostError(
            f"registry directory {directory}: need a directory that is writable for the driver; the kubelet makes it, is it the kubelet's?"
        )


def _lock_directory(directory: Path) -> int:
    """An exclusive lock on the plugin directory, held until the descriptor is closed or the process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        descriptor = os.open(directory / "instance.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"plugin directory {directory}: {error.strerror}; it must be writable for the driver") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise InstanceConflictError(f"plugin directory {directory} is used by another live instance; stop that one first") from error
        raise HostError(f"plugin directory {directory}: cannot be locked: {error.strerror}; it must be on a local file system") from error
    return descriptor
