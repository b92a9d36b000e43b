"""The node program as a process of the suite: it can be started with other flags, ended and left ended.

It lives in the node's namespaces, so it uses the default directories and sockets. It authenticates as its own ServiceAccount, with a token bound
to the Node object; when that object is made anew the old token is worth nothing, so the token file is renewed then.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from e2e.cluster import Cluster, Node
from e2e.gpu_nodes import ACCOUNT, NAMESPACE, GpuNode
from e2e.kube import Kube

DRIVER_ROOT = "/run/nvidia/driver"


class ProcessGpuNode(GpuNode):
    """A node whose program is our child."""

    def __init__(self, node: Node, cluster: Cluster, kube: Kube, profile: str) -> None:
        super().__init__(node, cluster, kube)
        self.profile = profile
        self.flags: tuple[str, ...] = ()
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    @property
    def log(self) -> Path:
        return self.cluster.settings.log / f"{self.name}-node-program.log"

    @property
    def token_file(self) -> Path:
        return self.node.root / "token"

    def ensure_started(self) -> None:
        if self.process is None:
            self.start()

    def start(self) -> None:
        """Starts the program; returns at once."""
        self.node.root.mkdir(parents=True, exist_ok=True)
        self._renew_token()
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        self.process = self.node.spawn(self.command(), log=self.log)

    def command(self) -> list[str]:
        """What runs on the node."""
        return [
            str(Path(sys.executable).with_name("dra-driver")),
            "node",
            f"--node-name={self.name}",
            f"--api-server={self.cluster.server}",
            f"--ca-file={self.cluster.ca_file}",
            f"--token-file={self.token_file}",
            f"--simulate={self.profile}",
            f"--driver-root={DRIVER_ROOT}",
            "--log-level=debug",
            "--proc-mount=/proc",  # all processes of the node, which is no whole machine
            *self.flags,
        ]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the program; returns its exit status."""
        self.send_signal(number)
        self.send_signal(signal.SIGCONT)
        assert self.process is not None
        status = self.process.wait(30)
        self.process = None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.stop(number) in {0, -number}
        self.start()

    def log_text(self) -> str:
        assert self.process is not None
        assert self.process.poll() is None, f"the node program ended:\n{self.log.read_text()[-2000:]}"
        return self.log.read_bytes()[self._log_begin :].decode()

    def node_recreated(self) -> None:
        self._renew_token()

    def _renew_token(self) -> None:
        node = self.kube.get("Node", self.name)
        assert node is not None
        temporary = self.token_file.with_suffix(".new")
        temporary.write_text(self.kube.token(NAMESPACE, ACCOUNT, bound_to=node))
        temporary.replace(self.token_file)
