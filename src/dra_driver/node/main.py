"""The node program: settings, then the parts of a GPU node and of a kubelet plugin, put together.

Here, and nowhere else, it is decided whether the GPUs are real or simulated.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from dra_driver.daemon import logs
from dra_driver.daemon.boot import boot_id
from dra_driver.daemon.metrics import MetricsServer
from dra_driver.daemon.paths import HostPaths, RealHostPaths
from dra_driver.daemon.settings import effective, parse
from dra_driver.daemon.signals import EndSignals
from dra_driver.errors import DraError, SettingsError, StoppedError
from dra_driver.gpu import attributes
from dra_driver.gpu import nvml as management_library
from dra_driver.gpu.faults import FaultWatch
from dra_driver.gpu.inventory import discover
from dra_driver.gpu.last_known import LastKnown
from dra_driver.gpu.nvml import Nvml
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import DeviceTaint
from dra_driver.kubelet.device_users import host_processes
from dra_driver.kubelet.health import HealthBoard
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths, sleep
from dra_driver.node.driver import DRIVER, GpuDriver
from dra_driver.node.settings import NodeSettings

log = logging.getLogger(__name__)

SWITCH_INTERVAL = 0.0005
"""Seconds for which a loop that computes (sweep, publisher, health) keeps a prepare from going on. A prepare waits some ten times, for disk and API
server, and each time Python's usual 5 ms might be added."""
USER_AGENT = "dra-driver-node"


class NodeProgram:
    """The running node program; `start` and `stop` may be called once each. Without `real_nodes` a simulated node has files for device nodes."""

    def __init__(self, settings: NodeSettings, *, real_nodes: bool = True) -> None:
        nvml, paths = _gpus(settings, real_nodes=real_nodes)
        management_library.initialize(nvml)
        self._last_known = LastKnown(settings.plugin_dir / "gpus.json", boot_id())
        self._inventory = inventory = self._last_known.complete(discover(nvml, paths), paths)
        for problem in inventory.problems:
            log.error("GPU left out", extra={"problem": str(problem)})
        for gpu in inventory.gpus:
            for reading in attributes.problems(gpu):
                log.warning("attribute left out", extra={"problem": reading})
        self._pool = settings.node_name
        self._taints: list[tuple[DeviceTaint, ...]] | None = None  # as they were published last
        self._driver = GpuDriver(settings.node_name, inventory, paths)
        self._client = Client(settings.connection(), USER_AGENT)
        self._health = HealthBoard(DRIVER, effect=settings.unhealthy_effect)
        self._health.keep([(settings.node_name, gpu.name) for gpu in inventory.gpus])
        self._health.listen(self._publish)
        self.plugin = KubeletPlugin(
            self._driver,
            self._client,
            node=settings.node_name,
            paths=PluginPaths(settings.plugin_dir, settings.registry_dir, settings.cdi_dir, settings.pod_resources_socket),
            instance=settings.pod_uid,
            versions=settings.dra_versions.split(","),
            processes=settings.proc_mount or host_processes(),
            health=self._health,
            sweep_grace=settings.sweep_grace,
        )
        faults = FaultWatch(nvml, inventory.gpus, partial(self._health.report, settings.node_name), leads=lambda: self._health.leads)
        self.plugin.add_loop("watch-gpus", faults.run)
        self.plugin.metrics.gauge(
            "nvml_hung_calls", "calls of NVML that have not returned, each with a thread that is given up", lambda: faults.hung_calls
        )

    def start(self, pause: Callable[[float], bool] = sleep) -> None:
        """Publishes and serves; `pause` and StoppedError as for `KubeletPlugin.start`."""
        self._publish()
        self.plugin.start(pause)
        self._last_known.save(self._inventory)

    def stop(self) -> None:
        """Deregisters and ends; prepared claims stay prepared."""
        self.plugin.stop()
        self._client.close()

    def _publish(self) -> None:
        """After each change of health; most of them, such as the first report of each GPU, leave the taints as they are."""
        taints = [self._health.taints(self._pool, gpu.name) for gpu in self._inventory.gpus]
        if taints != self._taints:
            self._taints = taints
            self.plugin.publisher.set_devices(self._driver.devices(self._health.taints))


def _gpus(settings: NodeSettings, *, real_nodes: bool) -> tuple[Nvml, HostPaths]:
    root, host_root = settings.driver_root_mount or settings.driver_root, settings.driver_root
    if settings.simulate:
        from dra_driver.gpu.simulator import simulate  # noqa: PLC0415  only here, so that a real node never loads it

        return simulate(
            settings.simulate,
            root,
            host_root=host_root,
            gpus=settings.simulate_gpus,
            seed=settings.node_name,
            real_nodes=real_nodes,
            faults=settings.simulate_faults,
            numbers=settings.simulate_numbers or (),
        )
    return management_library.load(root), RealHostPaths(root, host_root)


def main(arguments: Sequence[str]) -> int:
    """Runs until SIGTERM or SIGINT. Exit status 0, 1 for an error of this host or a metrics port that is taken, 2 for wrong settings."""
    try:
        settings = parse(NodeSettings, "dra-driver node", arguments)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201  there is no log before there are settings
        return 2
    sys.setswitchinterval(SWITCH_INTERVAL)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes plain lines into our log; failures reach us as exceptions
    logs.configure(settings.log_level)
    log.info("starting", extra={"settings": effective(settings)})
    with EndSignals() as end:
        try:
            program = NodeProgram(settings)
            port = MetricsServer(settings.metrics_port, program.plugin.probes, program.plugin.metrics)
            program.start(end.within)
        except StoppedError as error:
            log.info("stopping", extra={"signal": end.wait().name, "while": str(error)})
            return 0
        except DraError as error:
            log.error("cannot start", extra={"error": str(error)})  # noqa: TRY400  the text says it all
            return 2 if isinstance(error, SettingsError) else 1
        log.info("stopping", extra={"signal": end.wait().name})
        program.stop()
        port.close()
    return 0
