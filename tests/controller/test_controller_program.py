"""`dra-driver controller` as a process: port, probes, metrics, signals, exit status."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dra_driver.k8s.client import Client
from dra_driver.k8s.events import EVENTS
from dra_driver.k8s.objects.resource import DEVICE_CLASSES, RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer
from tests.controller.bed import FAILING, GOOD, a_class, a_slice, gpu

PROGRAM = Path(sys.executable).with_name("dra-driver")


class Running:
    def __init__(self, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "API_SERVER")}
        self.process = subprocess.Popen([PROGRAM, "controller", *arguments], stderr=subprocess.PIPE, text=True, env=environment)
        self.lines: list[dict[str, object]] = []

    def wait(self, message: str) -> dict[str, object]:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if self.lines[-1]["msg"] == message:
                return self.lines[-1]
        raise AssertionError(self.lines)

    def get(self, port: object, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self) -> int:
        assert self.process.stderr
        self.process.kill()
        self.process.stderr.close()
        return self.process.wait(20)


@pytest.fixture
def client(api: ApiServer) -> Iterator[Client]:
    found = Client(api.connection, "test")
    yield found
    found.close()


def test_a_life_of_the_program(api: ApiServer, client: Client) -> None:
    client.create(RESOURCE_SLICES, a_slice("a", gpu("gpu-0"), gpu("gpu-1")))
    client.create(DEVICE_CLASSES, a_class("good", GOOD))
    client.create(DEVICE_CLASSES, a_class("fails", FAILING))
    running = Running("--api-server", api.url, "--metrics-port", "0")
    try:
        port = running.wait("metrics and probes served")["port"]
        assert running.lines[0]["msg"] == "starting"
        assert running.wait("device class judged")["state"] == "SelectorFails"
        assert running.wait("device class judged")["state"] == "Matches"
        assert api.wait_for(lambda: len(api.requests("POST", "/namespaces/default/events")) == 2, 20)
        assert {event.reason for event in client.list(EVENTS).items} <= {"SelectorFails", "Matches"}

        code, health = running.get(port, "/healthz")
        assert code == 200
        assert [line.split(":")[0] for line in health.splitlines()] == ["watch-deviceclasses", "watch-resourceslices", "classes", "events"]
        # The log line comes before the end of the pass; /readyz says so until then.
        code, ready = running.get(port, "/readyz")
        assert (code, "reports: ok" in ready) in {(200, True), (503, False)}
        assert running.get(port, "/nothing")[0] == 404

        code, text = running.get(port, "/metrics")
        samples = {
            (sample.name, *sample.labels.values()): sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
        assert code == 200
        assert samples["dra_driver_controller_class_state", "good", "Matches"] == 1
        assert samples["dra_driver_controller_class_state", "good", "SelectorFails"] == 0
        assert samples["dra_driver_controller_class_matching_devices", "good"] == 2
        assert samples["dra_driver_controller_class_matching_nodes", "good"] == 1
        assert samples["dra_driver_controller_class_failing_devices", "fails"] == 2
        assert samples["dra_driver_controller_published_devices",] == 2
        assert samples["dra_driver_controller_evaluations_total",] == 4
        assert samples["dra_driver_controller_watch_failures_total", "ResourceSlice"] == 0
        assert samples["process_resident_memory_bytes",] > 0

        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
    finally:
        running.end()


def test_a_wrong_setting_ends_it_with_2() -> None:
    for arguments, text in (
        (["--metric-port", "1"], "unknown setting --metric-port"),
        (["--metrics-port", "70000"], "--metrics-port (METRICS_PORT)"),
        (["--api-server", "nowhere"], "API server address 'nowhere'"),
    ):
        ended = subprocess.run([PROGRAM, "controller", *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert text in ended.stderr


def test_a_port_that_is_taken_ends_it_with_1() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["--api-server", "http://127.0.0.1:1", "--metrics-port", port]
        ended = subprocess.run([PROGRAM, "controller", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"port {port} for metrics and probes (--metrics-port): Address already in use" in ended.stderr
