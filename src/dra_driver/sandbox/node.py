"""A GPU node without GPUs: our node program on a simulated NVML, and a kubelet for it, in one short directory."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from dra_driver.daemon.settings import parse
from dra_driver.errors import HostError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node, Pod
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.node.driver import DRIVER
from dra_driver.node.main import NodeProgram
from dra_driver.node.settings import NodeSettings
from dra_driver.sandbox.container import StartedContainer, start_container
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.kubelet.timing import Timing

START_LIMIT = 30.0


class SimulatedNode:
    """Kubelet, node program and container runtime of one node.

    `profile` names the simulated machine; `gpus` is how many GPUs it has instead of the profile's. The file `faults` below `root` breaks them, as
    `gpu.simulator.faults` tells. SettingsError: an unknown profile or wrong number.
    """

    def __init__(self, client: Client, name: str, *, profile: str, gpus: int | None = None, timing: Timing | None = None) -> None:
        self.name = name
        self._client = client
        self._undo = ExitStack()
        # Paths of sockets have 107 bytes, so TMPDIR is not asked.
        self.root = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp")))
        self.faults = self.root / "faults.toml"
        try:
            self.kubelet = StandInKubelet(client, name, self.root, timing=timing)
            flags = {
                "node-name": name,
                "driver-root": self.root / "driver",
                "plugin-dir": self.kubelet.plugins_directory / DRIVER,
                "registry-dir": self.kubelet.registry_directory,
                "cdi-dir": self.root / "cdi",
                "pod-resources-socket": self.kubelet.pod_resources_socket,
                "api-server": client.server,
                "simulate": profile,
                "simulate-faults": self.faults,
                **({} if gpus is None else {"simulate-gpus": gpus}),
            }
            self.settings = parse(NodeSettings, "simulated node", [f"--{flag}={value}" for flag, value in flags.items()], environment={})
            self.program = NodeProgram(self.settings, real_nodes=False)
        except BaseException:
            self._undo.close()
            raise

    def start(self) -> None:
        """Returns when the driver is registered and its slices are published. HostError: that took too long."""
        self._client.create(NODES, Node(metadata=ObjectMeta(name=self.name)))
        self.kubelet.start()
        self._undo.callback(self.kubelet.stop)
        if not self.kubelet.wait_wiped(START_LIMIT):
            raise HostError(f"node {self.name}: the kubelet has not removed the old ResourceSlices within {START_LIMIT:.0f} s")
        self._undo.callback(self._end_program)
        self._start_program()

    def stop_program(self) -> None:
        """The node program ends and the kubelet notices; the kubelet and prepared claims stay. HostError: the kubelet still has it."""
        self._end_program()
        registry = self.kubelet.registry
        if not registry.wait_for(lambda: all(plugin.driver != DRIVER for plugin in registry.plugins()), START_LIMIT):
            raise HostError(f"node {self.name}: the driver is still registered {START_LIMIT:.0f} s after its end")

    def restart_program(self) -> None:
        """Another process, as it were, takes the place of the one that runs or that was stopped. HostError as for `start`."""
        self.stop_program()
        self.program = NodeProgram(self.settings, real_nodes=False)
        self._start_program()

    def _end_program(self) -> None:
        self.program.stop()

    def _start_program(self) -> None:
        self.program.start()
        if not self.kubelet.wait_registered(DRIVER, START_LIMIT):
            why = "; ".join(self.kubelet.registry.failures.values()) or "no registrar socket appeared"
            raise HostError(f"node {self.name}: the driver was not registered within {START_LIMIT:.0f} s: {why}")
        if not self.program.plugin.publisher.published.wait(START_LIMIT):
            raise HostError(f"node {self.name}: no ResourceSlices within {START_LIMIT:.0f} s: {self.program.plugin.publisher.problem}")

    def stop(self) -> None:
        """The node program ends, then the kubelet; nothing is left on disk."""
        self._undo.close()

    def start_pod(self, pod: Pod) -> dict[str, StartedContainer]:
        """Prepares the pod's claims and starts its containers; what each finds, by name. ClaimRetryError or HostError as the kubelet reports it."""
        self.kubelet.prepare_pod(pod)
        return {
            container.name: start_container(self.kubelet.cdi_device_ids(pod, container), directories=[self.settings.cdi_dir])
            for container in pod.spec.containers
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
