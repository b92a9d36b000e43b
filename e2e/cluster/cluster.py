"""The cluster as a whole: its nodes, its start, and the state of each part."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.cluster import control_plane, host_directories, images, network, pki
from e2e.cluster.api import Api, ready_condition
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.node import DIRECTORIES, Node
from e2e.cluster.processes import Parts
from e2e.cluster.progress import Progress
from e2e.cluster.settings import DEFAULT_STATE, Settings

READY_LIMIT = 120.0


@dataclass(frozen=True)
class PartStatus:
    """One row of `status`. `state` is `running`, `ended` or `stopped`; the others are None for a part that was never started or was stopped."""

    name: str
    state: str
    pid: int | None
    since: float | None
    log: Path


class Cluster:
    """A cluster by its settings. `load` is the way to one that runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._parts = Parts(settings.state, settings.tools)
        self._control_plane = ControlPlane(settings, self._parts)
        self.nodes = tuple(Node(name, settings, self._parts) for name in settings.nodes)

    @classmethod
    def load(cls, state: Path = DEFAULT_STATE) -> Cluster:
        """The cluster that `up` started with this state directory. Raises SettingsError where there is none."""
        return cls(Settings.load(state))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.settings.kubeconfig

    @property
    def server(self) -> str:
        return self.settings.server

    @property
    def ca_file(self) -> Path:
        return self.settings.pki / "ca.crt"

    def node(self, name: str) -> Node:
        """Raises KeyError."""
        return {node.name: node for node in self.nodes}[name]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, as `subprocess.run` with captured text does."""
        command = [str(self.settings.tools / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=check)

    def parts(self) -> list[PartStatus]:
        """The state of every part that the cluster should have."""
        return [self._part_status(name) for name in (*control_plane.PARTS, *(part for node in self.nodes for part in node.part_names()))]

    def runs(self) -> bool:
        """Whether every part runs. Says nothing of readiness."""
        return all(part.state == "running" for part in self.parts())

    def node_readiness(self) -> dict[str, tuple[bool, str]]:
        """Of each node: whether it is Ready, and the reason. Raises OSError where the API server does not answer."""
        known = Api(self.settings).nodes()
        return {node.name: ready_condition(known[node.name]) if node.name in known else (False, "not registered") for node in self.nodes}

    def start(self, progress: Progress) -> None:
        """Start everything on a clean machine; returns when all nodes are Ready. Raises PartError, HostError or SettingsError."""
        settings = self.settings
        network.prepare_host(settings)
        with progress.step("certificates and images"):
            settings.save()
            settings.log.mkdir()
            self._parts.directory.mkdir()
            pki.create(settings)
            images.write_images(settings.images)
            host_directories.create([Path(path) for path in DIRECTORIES], settings.made_directories)
        self._control_plane.boot()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            booting = [pool.submit(self._boot, node, progress) for node in self.nodes]
            with progress.step("control plane ready"):
                self._control_plane.start()
            for boot in booting:
                boot.result()
            list(pool.map(Node.join, self.nodes))
        self.wait_ready(progress)

    def wait_ready(self, progress: Progress) -> None:
        """Wait until every node is Ready and reaches Services. Raises PartError."""
        with progress.step("nodes Ready"):
            for node in self.nodes:
                self._parts.wait(node.part("kubelet"), partial(self._is_ready, node), READY_LIMIT, needs=["kube-apiserver"])
                self._parts.wait(node.part("kube-proxy"), node.services_ready, READY_LIMIT)

    def _boot(self, node: Node, progress: Progress) -> None:
        with progress.step(f"{node.name} booted"):
            node.boot(self._control_plane.machine)

    def _is_ready(self, node: Node) -> bool:
        try:
            return self.node_readiness()[node.name][0]
        except OSError:
            return False

    def _part_status(self, name: str) -> PartStatus:
        part = self._parts.find(name)
        log = self._parts.log(name)
        if part is None:
            return PartStatus(name, "stopped", None, None, log)
        return PartStatus(name, "running" if part.process.alive() else "ended", part.process.pid, part.since, log)
