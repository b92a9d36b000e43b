"""Probes of our own sockets: calls by way of their files, since a server that lives can still be one that nobody reaches.

Each calls what the kubelet calls there. A prepare of no claim changes nothing and is not counted (`metrics.CallMeter`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dra_driver.errors import HostError
from dra_driver.kubelet._proto import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from dra_driver.kubelet._proto import plugin_registration_pb2 as registration_pb2
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as registration_pb2_grpc
from dra_driver.kubelet.service import V1, V1BETA1

DEADLINE = 5.0  # seconds

Probe = Callable[[grpc.Channel], None]
"""Calls something by way of the channel; raises grpc.RpcError, or HostError when the answer is not ours."""


def registrar_probe(socket: Path, endpoint: Path) -> Probe:
    """Asks the registrar on `socket` whether it is the one for the service on `endpoint`."""

    def probe(channel: grpc.Channel) -> None:
        info = registration_pb2_grpc.RegistrationStub(channel).GetInfo(registration_pb2.InfoRequest(), timeout=DEADLINE)
        if info.endpoint != str(endpoint):
            raise HostError(f"socket {socket}: another process answers there, for {info.endpoint}; stop that process")

    return probe


def service_probe(versions: Collection[str]) -> Probe:
    """Asks a service socket for its health, and for a prepare of nothing in each of the DRAPlugin `versions`."""

    def probe(channel: grpc.Channel) -> None:
        health: Any = health_pb2_grpc.HealthStub(channel)  # its type stub has no methods
        health.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
        if V1 in versions:
            dra_v1_pb2_grpc.DRAPluginStub(channel).NodePrepareResources(dra_v1_pb2.NodePrepareResourcesRequest(), timeout=DEADLINE)
        if V1BETA1 in versions:
            beta = dra_v1beta1_pb2_grpc.DRAPluginStub(channel)
            beta.NodePrepareResources(dra_v1beta1_pb2.NodePrepareResourcesRequest(), timeout=DEADLINE)

    return probe
