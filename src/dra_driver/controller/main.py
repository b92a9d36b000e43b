"""The controller program: settings, then the class controller, its metrics and its probes, put together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from dra_driver.controller.class_controller import ClassController
from dra_driver.controller.metrics import ControllerMetrics
from dra_driver.controller.settings import ControllerSettings
from dra_driver.daemon import logs
from dra_driver.daemon.metrics import MetricsServer
from dra_driver.daemon.probes import Probes
from dra_driver.daemon.settings import effective, parse
from dra_driver.daemon.signals import EndSignals
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import DraError, SettingsError
from dra_driver.k8s.client import Client

log = logging.getLogger(__name__)

USER_AGENT = "dra-driver-controller"
STOP_TIMEOUT = 10.0


class ControllerProgram:
    """The running controller; `start` and `stop` may be called once each."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._client = Client(settings.connection(), USER_AGENT)
        self.controller = ClassController(self._client)
        probes = Probes()
        self.controller.add_to(probes)
        self.server = MetricsServer(settings.metrics_port, probes, ControllerMetrics(self.controller, self._client))
        self._supervisor = Supervisor(probes=probes)

    def start(self) -> None:
        """Watches and reports."""
        self.controller.start(self._supervisor)

    def stop(self) -> None:
        """Ends; the Events stay."""
        self._supervisor.stop(STOP_TIMEOUT)
        self._client.close()
        self.server.close()


def main(arguments: Sequence[str]) -> int:
    """Runs until SIGTERM or SIGINT. Exit status 0, 1 when the metrics port cannot be had, 2 for wrong settings."""
    try:
        settings = parse(ControllerSettings, "dra-driver controller", arguments)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201  there is no log before there are settings
        return 2
    logs.configure(settings.log_level)
    log.info("starting", extra={"settings": effective(settings)})
    with EndSignals() as end:
        try:
            program = ControllerProgram(settings)
        except DraError as error:
            log.error("cannot start", extra={"error": str(error)})  # noqa: TRY400  the text says it all
            return 2 if isinstance(error, SettingsError) else 1
        program.start()
        log.info("stopping", extra={"signal": end.wait().name})
        program.stop()
    return 0
