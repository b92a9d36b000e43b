"""GPU nodes for the suite: on each node of the local cluster the node program runs as a process, on simulated GPUs.

The program lives in the node's namespaces, so it uses the default directories and sockets. It authenticates as its own ServiceAccount, with a token
bound to the Node object; when that object is made anew the old token is worth nothing, so the token file is renewed then.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes import client

from e2e.cluster import Cluster, Node
from e2e.kube import Kube, Object

DRIVER = "gpu.nvidia.com"
PLUGIN_DIR = f"/var/lib/kubelet/plugins/{DRIVER}"
DRIVER_ROOT = "/run/nvidia/driver"
NAMESPACE, ACCOUNT = "dra-driver", "dra-driver-node"
PROFILES = ("h100-sxm-80gb", "a100-sxm-40gb")


@dataclass
class GpuNode:
    """One node with the node program on it."""

    node: Node
    cluster: Cluster
    kube: Kube
    profile: str
    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_begin: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def log(self) -> Path:
        return self.cluster.settings.log / f"{self.name}-node-program.log"

    def start(self) -> None:
        """Starts the program; returns at once."""
        self.node.root.mkdir(parents=True, exist_ok=True)
        self.renew_token()
        command = [
            str(Path(sys.executable).with_name("dra-driver")),
            "node",
            f"--node-name={self.name}",
            f"--api-server={self.cluster.server}",
            f"--ca-file={self.cluster.ca_file}",
            f"--token-file={self._token_file}",
            f"--simulate={self.profile}",
            f"--driver-root={DRIVER_ROOT}",
            "--log-level=debug",
            *self.flags,
        ]
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = self.node.spawn(command, log=self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the program; returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the program by this signal and starts it again."""
        self.stop(number)
        self.start()

    def renew_token(self) -> None:
        """Writes a new token, bound to the present Node object."""
        node = self.kube.get("Node", self.name)
        assert node is not None
        bound = client.V1BoundObjectReference(kind="Node", api_version="v1", name=self.name, uid=node["metadata"]["uid"])
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], bound_object_ref=bound, expiration_seconds=3600))
        answer = client.CoreV1Api(self.kube.api).create_namespaced_service_account_token(ACCOUNT, NAMESPACE, request)
        temporary = self._token_file.with_suffix(".new")
        assert answer.status is not None
        temporary.write_text(str(answer.status.token))
        temporary.replace(self._token_file)

    def slices(self) -> list[Object]:
        """What is published for this node."""
        return self.kube.all("ResourceSlice", field_selector=f"spec.nodeName={self.name},spec.driver={DRIVER}")

    def devices(self) -> list[Object]:
        """The published devices, in order."""
        return [device for one in sorted(self.slices(), key=lambda one: one["metadata"]["name"]) for device in one["spec"].get("devices") or []]

    def wait_published(self, limit: float = 30.0) -> None:
        """Until the node's GPUs are there."""
        self.kube.wait(f"8 devices of {self.name} are published", lambda: self._lives() and len(self.devices()) == 8, limit=limit)

    def wait_registered(self) -> None:
        """Until the kubelet has told the program that it is registered."""
        self.kube.wait(f"{self.name} is registered", lambda: self._lives() and '"registered with the kubelet"' in self._log_of_this_process())

    def prepared_claims(self) -> dict[str, list[str]]:
        """The journal's claims by UID, with their devices."""
        import sqlite3

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
        """Deletes the Node object, lets the kubelet register again, renews the token."""
        old = self.kube.get("Node", self.name)
        assert old is not None
        self.kube.delete("Node", self.name)
        self.node.restart_kubelet()
        self.kube.wait(
            f"Node {self.name} is there again",
            lambda: (new := self.kube.get("Node", self.name)) and new["metadata"]["uid"] != old["metadata"]["uid"],
        )
        self.renew_token()

    @property
    def _token_file(self) -> Path:
        return self.node.root / "token"

    def _lives(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the node program ended:\n{self.log.read_text()[-2000:]}"
        return True

    def _log_of_this_process(self) -> str:
        return self.log.read_bytes()[self._log_begin :].decode()
