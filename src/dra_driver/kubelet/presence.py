"""What the kubelet sees of a driver: a service socket and a registrar socket, put there in this order, kept there, and taken away in an order that
costs no call.

Kept there: a socket whose file has vanished is made anew under the same name while the calls of the old one end in peace, since a restart of the
process would cost the calls of many seconds. Only where that is not possible, such as when the directory itself was replaced below a running
container, is a restart the cure, and the liveness probe asks for it. A socket that another process has put in our place is left alone: who is right
is not for us to say, so it is a reason not to be ready.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.daemon.probes import Probes
from dra_driver.errors import HostError, InstanceConflictError
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import Place, SocketServer, dial
from dra_driver.kubelet.socket_probes import Probe
from dra_driver.kubelet.strangers import Strangers

log = logging.getLogger(__name__)

LOOK_PERIOD = 2.0  # seconds
DIAL_PERIOD = 10.0
FORGIVEN = 2  # failures in a row that a restart is not asked for

LET_GO = 5.0
"""Seconds for the kubelet to close its connection after the registrar's socket has gone; it looks every second."""
LAST_CALLS = 2.0
LAST_CALLS_WITH_SUCCESSOR = 20.0
"""Seconds that running calls have before the registrar's socket goes: the kubelet cancels what runs on a connection that it closes. With another
instance there, new calls go to that one, so waiting costs nothing."""
_STEP = 0.02


class Presence:
    """`probes` are made by way of each of the two sockets. `lost` tells why our place is not ours any more, "" while it is.

    `changed` is called when a stranger has come or gone, `renewed` when a socket was made anew, with its path.
    """

    def __init__(
        self,
        service: SocketServer,
        registry: SocketServer,
        registrar: Registrar,
        strangers: Strangers,
        *,
        probes: Mapping[SocketServer, Probe],
        lost: Callable[[], str] = lambda: "",
        changed: Callable[[], None] = lambda: None,
        renewed: Callable[[Path], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._service, self._registry, self._registrar = service, registry, registrar
        self._strangers = strangers
        self._probes = probes
        self._lost = lost
        self._changed, self._renewed = changed, renewed
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._here: set[SocketServer] = set()
        self._leaving = False
        self._failures = 0
        self._stranger = Trouble(log, "another driver of our name is on this node", "the other driver of our name has gone")
        self._sockets = Trouble(log, "a socket of ours is lost", "our sockets are there and answer")
        self._taken = ""

    @property
    def stranger(self) -> str:
        """Who else has our driver's name, "" if nobody has. Then nothing of ours may be published."""
        return self._stranger.reason

    def add_to(self, probes: Probes) -> None:
        """What /healthz and /readyz ask."""
        probes.add_condition("other driver", lambda: self.stranger)
        probes.add_condition("sockets", lambda: self._sockets.reason or self._missing())
        probes.add_condition("registration", lambda: self._registrar.problem() if self._registry in self._here else "")
        probes.add_fault("sockets", self.fault)

    def fault(self) -> str:
        """What only a restart of this process cures, "" if nothing."""
        return self._sockets.reason if self._failures > FORGIVEN and not self._taken else ""

    def look_around(self) -> None:
        """Looks for strangers."""
        before = bool(self.stranger)
        self._stranger.tell(self._strangers.look())
        if before != bool(self.stranger):
            self._changed()

    def appear(self) -> None:
        """Makes the sockets that are not there, unless a stranger is in the way. HostError when one cannot be made."""
        with self._lock:
            if self._leaving or (self.stranger and not self._here):
                return
            for server in (self._service, self._registry):
                if server.place() is not Place.OURS:
                    self._make(server)

    def keep(self, stop: threading.Event) -> None:
        """A loop: keeps the sockets there and dials them."""
        dialled = self._clock.monotonic()
        while not self._clock.wait(stop, LOOK_PERIOD):
            if self._leaving:
                continue
            dial_now = self._clock.monotonic() - dialled >= DIAL_PERIOD
            if dial_now:
                dialled = self._clock.monotonic()
            self._turn(dial_now=dial_now or self._failures > 0)

    def leave(self, busy: Callable[[], bool], *, successor: bool) -> None:
        """Deregisters and returns when the kubelet has let go and no call runs, as told by `busy`; the service socket still serves then.

        `successor` tells whether another instance is there for the kubelet's calls. Bounded in time.
        """
        with self._lock:
            self._leaving = True
        if self._registry not in self._here:
            return
        self._wait(lambda: not busy(), LAST_CALLS_WITH_SUCCESSOR if successor else LAST_CALLS)
        self._registry.unlink()
        if not self._wait(lambda: not busy() and not self._service.connections(), LET_GO):
            log.warning("the kubelet has not let go of the service socket", extra={"connections": self._service.connections()})

    def _turn(self, *, dial_now: bool) -> None:
        self.look_around()
        reason = taken = ""
        try:
            self._check(dial_now=dial_now)
        except InstanceConflictError as error:
            reason = taken = str(error)
        except HostError as error:
            reason = str(error)
        with self._lock:
            if self._leaving:
                return
        self._taken = taken
        if reason or dial_now:
            self._failures = self._failures + 1 if reason else 0
            self._sockets.tell(reason)
        self._registrar.problem()  # tells the log when it is late

    def _check(self, *, dial_now: bool) -> None:
        if lost := self._lost():
            raise HostError(lost)
        self.appear()
        for server, probe in self._probes.items() if dial_now else ():
            if server in self._here:
                _dial(server, probe)

    def _make(self, server: SocketServer) -> None:
        server.remove_leftover()
        if server is self._registry:
            self._registrar.expect()
        server.start()
        if server in self._here:
            self._renewed(server.path)
            log.warning("a socket of ours had vanished and was made anew", extra={"socket": str(server.path)})
        self._here.add(server)

    def _missing(self) -> str:
        return "" if self._registry in self._here else "not there yet"

    def _wait(self, condition: Callable[[], bool], limit: float) -> bool:
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() >= end:
                return False
            time.sleep(_STEP)
        return True


def _dial(server: SocketServer, probe: Probe) -> None:
    with dial(server.path) as channel:
        try:
            probe(channel)
        except grpc.RpcError as error:
            raise HostError(f"socket {server.path} does not answer: {error.code().name}: {error.details()}") from error
