"""The HTTP port of a long-running program: `/metrics` for Prometheus, `/healthz` and `/readyz` for the kubelet."""

from __future__ import annotations

import functools
import logging
import socket
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from dra_driver.daemon.probes import Probes, Verdict
from dra_driver.errors import HostError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

log = logging.getLogger(__name__)

_IDLE = 30.0


class Collector(Protocol):
    """What Prometheus' client asks for metrics."""

    def collect(self) -> Iterable[Metric]:
        """All of them, as they are now."""
        ...


class MetricsServer:
    """Serves from construction until `close`, on all addresses. `port` 0 takes a free one. Raises HostError when the port cannot be had.

    Besides those of `collectors` there are metrics of the process itself: CPU, memory, open files.
    """

    def __init__(self, port: int, probes: Probes, *collectors: Collector) -> None:
        try:
            self._http = _HttpServer(port, probes, collectors)
        except OSError as error:
            raise HostError(f"port {port} for metrics and probes (--metrics-port): {error.strerror or error}; choose another one") from error
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True)
        self._thread.start()
        log.info("metrics and probes served", extra={"port": self.port})

    @property
    def port(self) -> int:
        """The one in use."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Ends the service."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, probes: Probes, collectors: Iterable[Collector]) -> None:
        self.probes = probes
        self.collectors = tuple(collectors)
        super().__init__(("", port), _Handler)

    @functools.cached_property
    def registry(self) -> CollectorRegistry:
        """Made for the first who asks: the import takes longer than the start of a node program may."""
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector  # noqa: PLC0415

        found = CollectorRegistry()
        ProcessCollector(registry=found)
        PlatformCollector(registry=found)
        GCCollector(registry=found)
        for one in self.collectors:
            found.register(one)
        return found

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Connections of probes that the last process ended linger for a minute; a restarted container has the same network.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)  # not the base's, which looks up the host's name
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("connection ended", extra={"client": client_address})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    server: _HttpServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path in ("/healthz", "/readyz"):
            self._verdict(self.server.probes.health() if path == "/healthz" else self.server.probes.readiness())
        else:
            self._send(404, b"known are /metrics, /healthz and /readyz\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
        log.debug(format, *args)

    def _metrics(self) -> None:
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

        encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._send(200, encoder(self.server.registry), content_type)

    def _verdict(self, verdict: Verdict) -> None:
        self._send(200 if verdict.good else 503, f"{verdict.text}\n".encode())

    def _send(self, code: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
