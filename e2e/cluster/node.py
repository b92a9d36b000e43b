"""A node: a machine with containerd, kubelet and kube-proxy at the standard paths.

What a node has for itself lies in `STATE/nodes/NAME` and is bound over the standard paths inside, so every node has the same paths, sockets
and ports. The rest of the file system is the host's: a program of the host runs on a node as it is.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import IO

from dra_driver.errors import HostError
from e2e.cluster import cgroups, network
from e2e.cluster.machine import Machine
from e2e.cluster.node_files import cni_configuration, containerd_configuration, kube_proxy_configuration, kubelet_configuration
from e2e.cluster.processes import Parts
from e2e.cluster.settings import Settings

# Path on the node: directory below STATE/nodes/NAME. /run is the node's as a whole, so /run/nvidia, /var/run/cdi and the like are too.
DIRECTORIES = {
    "/run": "run",
    "/var/log": "log",
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/etc/cni/net.d": "cni-configuration",
    "/etc/cdi": "cdi",
}
# A kubelet writes its wishes into these; on a node they are files of its own, so that the host keeps its settings.
KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
RUNTIME_DIRECTORIES = ("run/lock", "run/nvidia", "run/cdi", "run/netns", "kubelet/plugins", "kubelet/plugins_registry", "log/pods", "log/containers")
KUBELET_PORT = 10250
KUBE_PROXY_HEALTH_PORT = 10256


class Node:
    """One node of a cluster that runs."""

    def __init__(self, name: str, settings: Settings, parts: Parts) -> None:
        self.name = name
        self._settings = settings
        self._parts = parts
        self._home = settings.state / "nodes" / name
        mounts = {target: self._home / source for target, source in DIRECTORIES.items()}
        mounts |= {f"/proc/sys/{setting}": self._kernel_setting(setting) for setting in KERNEL_SETTINGS}
        self.machine = Machine(name, parts, mounts, network.NODE_SYSCTLS)

    # What tests use

    @property
    def address(self) -> IPv4Address:
        return self._settings.node_address(self.name)

    @property
    def root(self) -> Path:
        """A directory that has this same path on the node and on the host, for files that both need."""
        return self._home / "shared"

    def host_path(self, path: str | PurePosixPath) -> Path:
        """Where the host sees what the node has at the absolute `path`. Links other than /var/run are not followed."""
        inside = PurePosixPath(path)
        if inside.is_relative_to("/var/run"):
            inside = PurePosixPath("/run") / inside.relative_to("/var/run")
        for target, source in DIRECTORIES.items():
            if inside.is_relative_to(target):
                return self._home / source / inside.relative_to(target)
        return Path(inside)

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the node to its end; see `Machine.exec`."""
        return self.machine.exec(command, stdin=stdin, env=env, timeout=timeout, check=check)

    def spawn(self, command: Sequence[str], *, log: Path | IO[bytes] | None = None, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process on the node; see `Machine.spawn`."""
        return self.machine.spawn(command, log=log, env=env)

    def start_kubelet(self) -> None:
        """Returns when the kubelet serves. Raises PartError."""
        flags = [
            f"--config={self._file('kubelet.json')}",
            f"--kubeconfig={self._settings.pki / self.name}.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--v=2",
        ]
        self._start("kubelet", flags)
        self._parts.wait(self.part("kubelet"), self._kubelet_serves, needs=[self.name])

    def stop_kubelet(self) -> None:
        """Ends the kubelet; pods live on. Nothing happens where it does not run."""
        self._parts.stop(self.part("kubelet"))

    def restart_kubelet(self) -> None:
        """Pods live on. The kubelet hears of them again a moment later; until then it answers `pod does not exist` to exec and logs."""
        self.stop_kubelet()
        self.start_kubelet()

    def start_containerd(self) -> None:
        """Returns when containerd answers. Raises PartError."""
        self._start("containerd", [f"--config={self._file('containerd.toml')}"])
        self._parts.wait(self.part("containerd"), self._containerd_answers, needs=[self.name])

    def restart_containerd(self) -> None:
        """Pods live on: each container hangs on a shim of its own."""
        self._parts.stop(self.part("containerd"))
        self.start_containerd()

    def import_images(self, archive: Path) -> None:
        """Give the node's pods the images of an OCI or Docker archive. Raises HostError."""
        done = self.exec([self._tool("ctr"), "--namespace=k8s.io", "images", "import", str(archive)])
        if done.returncode:
            raise HostError(f"containerd of {self.name} does not take the images of {archive}: {done.stderr.strip()}")

    # What the cluster uses

    def part(self, program: str) -> str:
        """The name of the node's part that runs `program`."""
        return f"{self.name}-{program}"

    def part_names(self) -> list[str]:
        return [self.name, *(self.part(program) for program in ("containerd", "kubelet", "kube-proxy"))]

    def boot(self, control_plane: Machine) -> None:
        """Make the machine, plug it in, start containerd and load the images; the API server need not run yet. Raises PartError."""
        self._write_files()
        cgroups.create(self.name)
        self.machine.start()
        network.plug_in(self.machine, control_plane, self._settings)
        self.start_containerd()
        self.import_images(self._settings.images)

    def join(self) -> None:
        """Start what makes the machine a node of the cluster. Raises PartError."""
        self._start("kube-proxy", [f"--config={self._file('kube-proxy.json')}"])
        self.start_kubelet()

    def services_ready(self) -> bool:
        """Whether kube-proxy has written the rules of the Services that it knows."""
        connection = http.client.HTTPConnection(str(self.address), KUBE_PROXY_HEALTH_PORT, timeout=2)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _write_files(self) -> None:
        for directory in (*DIRECTORIES.values(), *RUNTIME_DIRECTORIES, "configuration", "shared"):
            (self._home / directory).mkdir(parents=True, exist_ok=True)
        for setting in KERNEL_SETTINGS:
            self._kernel_setting(setting).write_text(Path("/proc/sys", setting).read_text())
        resolver = self._file("resolv.conf")
        resolver.write_text("")  # the cluster has no DNS, and the host's is not its own
        self._file("containerd.toml").write_text(containerd_configuration())
        self._file("kubelet.json").write_text(json.dumps(kubelet_configuration(self._settings, self.name, str(resolver)), indent=2))
        self._file("kube-proxy.json").write_text(json.dumps(kube_proxy_configuration(self._settings, self.name), indent=2))
        self.host_path("/etc/cni/net.d/10-e2e.conflist").write_text(json.dumps(cni_configuration(self._settings, self.name), indent=2))

    def _file(self, name: str) -> Path:
        return self._home / "configuration" / name

    def _kernel_setting(self, setting: str) -> Path:
        return self._file(setting.replace("/", "."))

    def _tool(self, name: str) -> str:
        return str(self._settings.tools / name)

    def _start(self, program: str, flags: list[str]) -> None:
        self.machine.start_part(self.part(program), [self._tool(program), *flags])

    def _containerd_answers(self) -> bool:
        return self.exec([self._tool("ctr"), "version"]).returncode == 0

    def _kubelet_serves(self) -> bool:
        try:
            socket.create_connection((str(self.address), KUBELET_PORT), timeout=2).close()
        except OSError:
            return False
        return True
