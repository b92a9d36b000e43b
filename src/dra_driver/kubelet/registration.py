"""Registration: how the kubelet learns that the driver is here and which services it has.

The kubelet watches its registry directory; for every socket there it asks `GetInfo` (it waits one second) and tells the outcome by
`NotifyRegistrationStatus`. After its own restart it asks again, so the registrar lives as long as the process. Removing the socket deregisters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import grpc

from dra_driver.kubelet._proto import plugin_registration_pb2 as pb
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as rpc

log = logging.getLogger(__name__)


class Registrar(rpc.RegistrationServicer):
    """Answers for one driver whose services live on the socket `endpoint`. `versions` are names such as v1.DRAPlugin, most wanted first."""

    def __init__(self, driver: str, endpoint: Path, versions: Sequence[str]) -> None:
        self._info = pb.PluginInfo(type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=versions)
        self.registered = threading.Event()
        self.failure = ""

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: N802, ARG002
        """Who we are."""
        return self._info

    def NotifyRegistrationStatus(  # noqa: N802
        self,
        request: pb.RegistrationStatus,
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> pb.RegistrationStatusResponse:
        """What the kubelet made of it. A failure is shown and kept; the kubelet tries again by itself."""
        if request.plugin_registered:
            self.failure = ""
            self.registered.set()
            log.info("registered with the kubelet", extra={"driver": self._info.name, "services": list(self._info.supported_versions)})
        else:
            self.failure = request.error
            self.registered.clear()
            log.error("the kubelet refused the registration", extra={"driver": self._info.name, "error": request.error})
        return pb.RegistrationStatusResponse()
