"""The node program as users have it: an image and a chart, installed by helm."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from e2e.cluster import Cluster, Node, driver_image
from e2e.gpu_nodes import NAMESPACE, GpuNode
from e2e.kube import HANG, Kube, Object

CHART = Path(__file__).resolve().parent.parent / "helm" / "dra-driver"
RELEASE = "dra-driver"
PODS = "app.kubernetes.io/instance=dra-driver,app.kubernetes.io/component="


class Chart:
    """The release of the suite. `image` is the archive of the driver's image."""

    def __init__(self, cluster: Cluster, kube: Kube, image: Path) -> None:
        self.cluster, self.kube, self.image = cluster, kube, image

    @property
    def environment(self) -> dict[str, str]:
        """What `helm` and `kubectl` need of a shell that a person would type them into."""
        home = self.cluster.settings.state / "helm"
        places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        path = f"{self.cluster.settings.tools}:{os.environ['PATH']}"
        return {**os.environ, **places, "PATH": path, "KUBECONFIG": str(self.cluster.kubeconfig)}

    def helm(self, *arguments: str) -> str:
        """What helm prints."""
        run = subprocess.run(["helm", *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=2 * HANG)
        assert run.returncode == 0, f"helm {' '.join(arguments)}:\n{run.stdout}{run.stderr}"
        return run.stdout

    def install(self) -> None:
        """Installs or upgrades to the suite's values; returns when all pods are Ready."""
        values = ("simulated.enabled=true", f"image.repository={driver_image.REPOSITORY}", f"image.tag={driver_image.TAG}", "node.logLevel=debug")
        driver_image.give(self.cluster, self.image)
        flags = [f"--namespace={NAMESPACE}", "--create-namespace", "--wait", "--timeout=2m", *(f"--set={value}" for value in values)]
        self.helm("upgrade", "--install", RELEASE, str(CHART), *flags)

    def is_installed(self) -> bool:
        """Whether helm knows the release."""
        return RELEASE in self.helm("list", "--short", f"--namespace={NAMESPACE}").split()

    def uninstall(self) -> None:
        """Returns when its objects and pods are gone."""
        self.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--ignore-not-found", "--wait")
        self.kube.wait("all pods of the chart are gone", lambda: not self.kube.all("Pod", NAMESPACE))

    def pods(self, program: str) -> list[Object]:
        """The pods of "node" or "controller" that are not being deleted."""
        found = self.kube.all("Pod", NAMESPACE, label_selector=PODS + program)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


class PodGpuNode(GpuNode):
    """A node whose program runs in a pod of the chart's DaemonSet."""

    def __init__(self, node: Node, chart: Chart) -> None:
        super().__init__(node, chart.cluster, chart.kube)
        self.chart = chart

    def ensure_started(self) -> None:
        if not self.chart.is_installed():
            self.chart.install()

    @property
    def pod(self) -> Object:
        """The pod that runs now."""
        return self.kube.wait(f"{self.name} has a pod of the node program", self._pod)

    def send_signal(self, number: signal.Signals) -> None:
        self.node.exec(["pkill", f"-{number.value}", "--full", "--", "dra-driver node"], check=number != signal.SIGCONT)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        before = self._container_id()
        self.send_signal(number)
        self.send_signal(signal.SIGCONT)
        self.kube.wait(f"the kubelet of {self.name} started the node program again", lambda: self._container_id() not in {before, ""})

    def log_text(self) -> str:
        meta = self.pod["metadata"]
        directory = self.node.host_path(f"/var/log/pods/{NAMESPACE}_{meta['name']}_{meta['uid']}/node")
        logs = sorted(directory.glob("*.log"), key=lambda path: int(path.stem))
        return logs[-1].read_text() if logs else ""

    def _pod(self) -> Object | None:
        return next((pod for pod in self.chart.pods("node") if pod["spec"].get("nodeName") == self.name), None)

    def _container_id(self) -> str:
        """Of the container that runs, "" where none does."""
        for status in self.pod["status"].get("containerStatuses") or []:
            if "running" in status["state"]:
                return str(status["containerID"])
        return ""
