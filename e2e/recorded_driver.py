"""A driver that writes down what the kubelet says to it, to hold the kubelet stand-in against the real kubelet.

`python -m e2e.recorded_driver --node N --server URL --ca FILE --token FILE --record FILE` runs one on the default directories. It has one device and
fails the first attempt to prepare it. The same driver runs in the tests under the stand-in: what both write must be equal.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dra_driver.errors import ClaimRetryError
from dra_driver.k8s import config
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import Device, DeviceAllocationResult
from dra_driver.kubelet.cdi import ContainerEdits
from dra_driver.kubelet.driver import Driver, Plan, PlannedDevice
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths
from dra_driver.kubelet.server import PROBE_AGENT
from dra_driver.sandbox.kubelet.calls import as_data

DRIVER = "recorded.example.com"


class RecordedDriver(Driver):
    """One device; the first plan fails."""

    name = DRIVER
    cdi_kind = f"k8s.{DRIVER}/claim"

    def __init__(self) -> None:
        self._failed = False

    def plan(self, allocation: DeviceAllocationResult) -> Plan:
        if not self._failed:
            self._failed = True
            raise ClaimRetryError("the first attempt fails on purpose")
        edits = ContainerEdits(env=("RECORDED=yes",))
        return Plan(tuple(PlannedDevice(result, result.device, edits) for result in allocation.results), ContainerEdits())


class Recorder(grpc.ServerInterceptor):
    """Appends one JSON line for each unary call of the kubelet, in the form that `sandbox.kubelet.calls` describes.

    Drivers probe their own sockets, and look who else is registered: those calls are not the kubelet's.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        agents = [value for key, value in details.invocation_metadata if key == "user-agent"]
        if handler is None or handler.unary_unary is None or any(agent.startswith(PROBE_AGENT) for agent in agents):
            return handler

        def record(request: Any, context: grpc.ServicerContext) -> Any:
            remaining = context.time_remaining()
            line = {"method": details.method, "request": as_data(request), "timeout": None if remaining is None else round(remaining)}
            with self._lock, self._file.open("a") as out:
                out.write(json.dumps(line) + "\n")
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            record, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


def plugin(client: Client, node: str, kubelet_directory: Path, cdi: Path, record: Path) -> KubeletPlugin:
    """The plugin, not started, with one device to publish."""
    paths = PluginPaths(kubelet_directory / "plugins" / DRIVER, kubelet_directory / "plugins_registry", cdi)
    one = KubeletPlugin(RecordedDriver(), client, node=node, paths=paths, interceptors=[Recorder(record)])
    one.publisher.set_devices([Device(name="only")])
    return one


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("node", "server", "ca", "token", "record"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    client = Client(config.find(server=given.server, ca_file=Path(given.ca), token_file=Path(given.token)), "recorded-driver")
    one = plugin(client, given.node, Path("/var/lib/kubelet"), Path("/var/run/cdi"), Path(given.record))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    one.start()
    ended.wait()
    one.stop()


if __name__ == "__main__":
    main()
