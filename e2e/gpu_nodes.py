"""A node with the node program on it, whichever way it got there: as a process of the suite (`process_nodes`) or from the chart (`pod_nodes`)."""

from __future__ import annotations

import signal
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path

from e2e.cluster import Cluster, Node
from e2e.kube import Kube, Object

DRIVER = "gpu.nvidia.com"
PLUGIN_DIR = f"/var/lib/kubelet/plugins/{DRIVER}"
NAMESPACE, ACCOUNT = "dra-driver", "dra-driver-node"


class GpuNode(ABC):
    """One node and its node program, which runs on simulated GPUs."""

    def __init__(self, node: Node, cluster: Cluster, kube: Kube) -> None:
        self.node, self.cluster, self.kube = node, cluster, kube

    @property
    def name(self) -> str:
        return self.node.name

    @abstractmethod
    def ensure_started(self) -> None:
        """Starts the program where it does not run."""

    @abstractmethod
    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program."""

    @abstractmethod
    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the program by this signal, also where it is stopped; returns when another one has started."""

    @abstractmethod
    def log_text(self) -> str:
        """What the program that runs now has written. Fails when there is none."""

    def node_recreated(self) -> None:  # noqa: B027  (most have nothing to do)
        """Called after the Node object was made anew."""

    def slices(self) -> list[Object]:
        """What is published for this node."""
        return self.kube.all("ResourceSlice", field_selector=f"spec.nodeName={self.name},spec.driver={DRIVER}")

    def devices(self) -> list[Object]:
        """The published devices, in order."""
        return [device for one in sorted(self.slices(), key=lambda one: one["metadata"]["name"]) for device in one["spec"].get("devices") or []]

    def wait_published(self, limit: float = 30.0) -> None:
        """Until the node's GPUs are there."""
        self.kube.wait(f"8 devices of {self.name} are published", lambda: self.log_text() and len(self.devices()) == 8, limit=limit)

    def wait_registered(self) -> None:
        """Until the kubelet has told the program that it is registered."""
        self.kube.wait(f"{self.name} is registered", lambda: '"registered with the kubelet"' in self.log_text())

    def prepared_claims(self) -> dict[str, list[str]]:
        """The journal's claims by UID, with their devices."""
        path = self.node.host_path(f"{PLUGIN_DIR}/state.db")
        if not path.exists():
            return {}
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT uid, device FROM claims LEFT JOIN devices ON uid = claim_uid ORDER BY uid, device").fetchall()
        db.close()
        found: dict[str, list[str]] = {}
        for uid, device in rows:
            found.setdefault(uid, []).append(device)
        return found

    def cdi_specs(self) -> dict[str, Path]:
        """CDI files of claims, by claim UID."""
        directory = self.node.host_path("/var/run/cdi")
        return {path.stem.partition("_")[2]: path for path in directory.glob("k8s.gpu.nvidia.com-claim_*.json")}

    def recreate_node_object(self) -> None:
        """Deletes the Node object and lets the kubelet register again."""
        old = self.kube.get("Node", self.name)
        assert old is not None
        self.kube.delete("Node", self.name)
        self.node.restart_kubelet()
        self.kube.wait(
            f"Node {self.name} is there again",
            lambda: (new := self.kube.get("Node", self.name)) and new["metadata"]["uid"] != old["metadata"]["uid"],
        )
        self.node_recreated()
