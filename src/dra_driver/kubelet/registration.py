"""Registration: how the kubelet learns that the driver is here and which services it has.

The kubelet watches its registry directory; for every socket there it asks `GetInfo` (it waits one second) and tells the outcome by
`NotifyRegistrationStatus`. After its own restart it asks again, so the registrar lives as long as the process. Removing the socket deregisters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.kubelet._proto import plugin_registration_pb2 as pb
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as rpc

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds after which a kubelet that has not asked for us is worth a line of the log."""


class Registrar(rpc.RegistrationServicer):
    """Answers for one driver whose services live on the socket `endpoint`. `versions` are names such as v1.DRAPlugin, most wanted first.

    `registered` is set while the kubelet has accepted us, `failure` is why it has not, `refusals` counts. `accepted` is called when it has.
    """

    def __init__(
        self, driver: str, endpoint: Path, versions: Sequence[str], *, accepted: Callable[[], None] = lambda: None, clock: Clock | None = None
    ) -> None:
        self._info = pb.PluginInfo(type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=versions)
        self._accepted = accepted
        self._clock = clock or SystemClock()
        self._since = self._clock.monotonic()
        self._late = False
        self.registered = threading.Event()
        self.failure = ""
        self.refusals = 0

    def expect(self) -> None:
        """The socket has just appeared in the registry directory: what the kubelet made of an earlier one counts no more."""
        self.registered.clear()
        self.failure = ""
        self._late = False
        self._since = self._clock.monotonic()

    def problem(self) -> str:
        """Why the kubelet does not call us, "" if it may."""
        if self.registered.is_set():
            return ""
        if self.failure:
            return f"the kubelet refused the registration: {self.failure}"
        age = self._clock.monotonic() - self._since
        reason = f"the kubelet has not registered the driver for {age:.0f} s"
        if age <= PATIENCE:
            return reason
        reason += "; does it run, and is the registry directory its own?"
        if not self._late:
            self._late = True
            log.error("the kubelet does not register the driver", extra={"driver": self._info.name, "error": reason})
        return reason

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: N802, ARG002
        """Who we are."""
        return self._info

    def NotifyRegistrationStatus(  # noqa: N802
        self,
        request: pb.RegistrationStatus,
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> pb.RegistrationStatusResponse:
        """What the kubelet made of it. A failure is shown and kept; the kubelet tries again by itself."""
        about = {"driver": self._info.name, "services": list(self._info.supported_versions)}
        if request.plugin_registered:
            self.failure = ""
            self.registered.set()
            log.info("registered with the kubelet", extra=about)
            self._accepted()
        else:
            self.refusals += 1
            self.registered.clear()
            if request.error != self.failure:
                log.error("the kubelet refused the registration", extra=about | {"error": request.error})
            self.failure = request.error or "no reason given"
        return pb.RegistrationStatusResponse()
