"""The port of probes and metrics."""

from __future__ import annotations

import socket

from dra_driver.daemon.metrics import MetricsServer
from dra_driver.daemon.probes import Probes


def test_a_restart_gets_its_port_though_connections_of_probes_linger() -> None:
    port = 0
    for _ in range(3):
        server = MetricsServer(port, Probes())
        port = server.port
        with socket.create_connection(("127.0.0.1", port), timeout=10) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")  # so the server ends it, and remembers it for a minute
            while probe.recv(4096):
                pass
        server.close()
