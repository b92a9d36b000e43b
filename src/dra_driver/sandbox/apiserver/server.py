"""The double as its users see it: an address, and the handles that tests pull."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.k8s.config import Connection
from dra_driver.sandbox.apiserver.faults import Fault, Faults
from dra_driver.sandbox.apiserver.http import HttpServer, Request
from dra_driver.sandbox.apiserver.kinds import BY_PATH
from dra_driver.sandbox.apiserver.store import Store
from dra_driver.sandbox.apiserver.streams import Stream

GATES_OFF_BY_DEFAULT = frozenset(
    {"DRAListTypeAttributes", "DRADeviceCompatibilityGroups", "DRAPartitionableDevicesType", "DRAOptionalNodeOperations"}
)  # in 1.37


class ApiServer:
    """Listens on a free port of localhost from construction until `close`.

    `seed` decides names and UIDs; `disabled_gates` are feature gates that are off, so that their fields are dropped silently; `bookmark_every` is in
    seconds; with `tokens` set, other bearers than these are refused.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        disabled_gates: frozenset[str] = GATES_OFF_BY_DEFAULT,
        bookmark_every: float = 60.0,
        version: str = "v1.37.2",
    ) -> None:
        self.store = Store(clock or SystemClock(), seed, disabled_gates)
        self.tokens: set[str] | None = None
        self.bookmark_every = bookmark_every
        self.version = version
        self._faults = Faults()
        self._requests: list[Request] = []
        self._streams: set[Stream] = set()
        for name in ("default", "kube-system"):
            self.store.create(BY_PATH["v1", "namespaces"], "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._http = HttpServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="apiserver", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def url(self) -> str:
        """http://127.0.0.1:port."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def connection(self) -> Connection:
        """For a `Client`."""
        return Connection(self.url)

    def close(self) -> None:
        """Ends all connections and threads."""
        self._faults.release()
        self.cut_watches()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()

    # What tests look at ---------------------------------------------------------------------------------------------

    def requests(self, method: str = "*", path: str = "") -> list[Request]:
        """The requests so far whose path with query contains the pattern `path`."""
        with self.store.changed:
            return [request for request in self._requests if method in ("*", request.method) and re.search(path, request.path)]

    def wait_for(self, condition: Callable[[], bool], timeout: float = 10.0) -> bool:
        """Waits until `condition` holds; looked at after each request and each change."""
        with self.store.changed:
            return self.store.changed.wait_for(condition, timeout)

    @property
    def open_watches(self) -> int:
        """Watches that are being served."""
        with self.store.changed:
            return len(self._streams)

    @property
    def open_connections(self) -> int:
        """TCP connections."""
        return self._http.open_connections

    # What tests do to it --------------------------------------------------------------------------------------------

    def fail(
        self,
        method: str = "*",
        path: str = "",
        *,
        status: int,
        times: int | None = 1,
        reason: str = "",
        message: str = "ordered by the test",
        retry_after: int | None = None,
    ) -> Fault:
        """Answers the next `times` matching requests (None: all, until `Fault.release`) with `status`.

        `path` is a pattern that is searched in path and query.
        """
        fault = Fault(method, re.compile(path), times, status=status, reason=reason, message=message, retry_after=retry_after)
        return self._faults.add(fault)

    def hang(self, method: str = "*", path: str = "", *, times: int | None = 1) -> Fault:
        """Holds the next matching requests until `Fault.release`."""
        return self._faults.add(Fault(method, re.compile(path), times, hang=True))

    def lose_answer(self, method: str = "*", path: str = "", *, times: int | None = 1) -> Fault:
        """Does what the next matching requests want, then breaks the connection instead of answering."""
        return self._faults.add(Fault(method, re.compile(path), times, lose_answer=True))

    def inject(self, group_version: str, plural: str, data: dict[str, Any]) -> None:
        """Stores any JSON with a metadata.name, valid or not."""
        self.store.inject(BY_PATH[group_version, plural], data)

    def compact(self) -> None:
        """Older resourceVersions and continue tokens meet 410; watches that have caught up go on."""
        self.store.compact()

    def send_bookmarks(self) -> None:
        """A bookmark on every watch, now."""
        self._mark("bookmark")

    def cut_watches(self) -> None:
        """Breaks the connection of every watch."""
        self._mark("cut")

    def mute_watches(self) -> None:
        """The present watches stay connected and never say anything again."""
        self._mark("mute")

    def _mark(self, what: str) -> None:
        with self.store.changed:
            for stream in self._streams:
                setattr(stream, what, True)
            self.store.changed.notify_all()

    # What the handler calls -----------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> Fault | None:
        """Notes a request; the fault that was ordered for it."""
        with self.store.changed:
            self._requests.append(request)
            self.store.changed.notify_all()
        return self._faults.take(request.method, request.path)

    def track(self, stream: Stream, *, begin: bool) -> None:
        """A watch begins or ends."""
        with self.store.changed:
            (self._streams.add if begin else self._streams.discard)(stream)
            self.store.changed.notify_all()
