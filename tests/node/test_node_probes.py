"""The port of a running node program: probes, metrics, and that the reference page names all of them."""

from __future__ import annotations

import signal
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.kubelet._proto import dra_v1_pb2, dra_v1_pb2_grpc
from dra_driver.kubelet.server import dial, is_served
from dra_driver.node.driver import DRIVER
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from tests.kubelet.test_presence import until
from tests.node.test_node_program import Running, flags, run
from tests.project.test_reference import rows

NODE = "node-a"


@pytest.fixture
def port() -> Iterator[int]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory, ApiServer() as api:
        short, client = Path(directory), Client(api.connection, "test")
        client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
        changes = {"plugin_dir": str(short / "plugins" / DRIVER), "registry_dir": str(short / "plugins_registry"), "api_server": api.url}
        with StandInKubelet(client, NODE, short):
            program = Running(flags(short, pod_uid="0f3b1a1e-93a6-4c5d-8a34-0cbd9a1c6a01", **changes))
            try:
                yield int(program.wait_for("metrics and probes served")["port"])
            finally:
                assert program.end(signal.SIGTERM) == 0
        client.close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_reference_page_names_all_that_a_running_program_shows(port: int) -> None:
    until(lambda: get(port, "/readyz")[0] == 200)
    assert [f"`{line.split(':')[0]}`" for line in get(port, "/readyz")[1].splitlines()] == [row[0] for row in rows("Probes of the node program")]
    code, health = get(port, "/healthz")
    assert code == 200
    assert {"publish-slices", "watch-slices", "sockets", "lease", "sweep"} <= {line.split(":")[0] for line in health.splitlines()}
    code, text = get(port, "/metrics")
    assert code == 200
    shown = []
    for family in text_string_to_metric_families(text):
        if family.name.startswith(("process_", "python_")):
            continue
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        assert {"device", "node", "pool", "pod", "namespace", "claim"}.isdisjoint(labels)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown.append([f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation])
    assert rows("Metrics of the node program") == shown


def test_a_program_that_runs_says_so_in_numbers(port: int) -> None:
    until(lambda: get(port, "/readyz")[0] == 200)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(get(port, "/metrics")[1])
        for sample in family.samples
    }
    assert samples["dra_driver_registered",] == 1
    assert samples["dra_driver_leads",] == 1
    assert samples["dra_driver_prepared_claims",] == 0
    assert samples["process_resident_memory_bytes",] > 0


def test_a_signal_ends_it_soon_whatever_hangs() -> None:
    """A call that waits for an API server that does not answer, an open stream, and a client that never lets go."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory, ApiServer() as api:
        short = Path(directory)
        (short / "registry").mkdir()
        program = Running(flags(short, api_server=api.url))
        program.wait_for("metrics and probes served")
        path = short / "plugin" / "dra.sock"
        until(lambda: is_served(path))
        slow = api.hang("GET", "resourceclaims", times=None)
        with dial(path) as channel:
            stream = iter(cast("Any", health_pb2_grpc.HealthStub(channel)).Watch(health_pb2.HealthCheckRequest()))
            assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
            request = dra_v1_pb2.NodePrepareResourcesRequest()
            request.claims.add(namespace="default", name="c", uid="u")
            call = dra_v1_pb2_grpc.DRAPluginStub(channel).NodePrepareResources.future(request, timeout=60)
            assert api.wait_for(lambda: slow.hits == 1)
            began = time.monotonic()
            assert program.end(signal.SIGTERM) == 0
            assert time.monotonic() - began < 15
            assert call.exception(20) is not None
        slow.release()
        assert not list(short.rglob("*.sock"))


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        pytest.param(None, None, "is used by another live instance", id="without pod UIDs"),
        pytest.param("uid-1", "uid-1", "an instance with pod UID uid-1 is alive already", id="the same pod UID"),
    ],
)
def test_a_second_program_ends_with_a_clear_message_and_the_first_goes_on(first: str | None, second: str | None, told: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory, ApiServer() as api:
        short = Path(directory)
        (short / "registry").mkdir()
        program = Running(flags(short, api_server=api.url, pod_uid=first))
        program.wait_for("metrics and probes served")
        (socket,) = until(lambda: list((short / "registry").glob("*.sock")))
        ended = run(flags(short, api_server=api.url, pod_uid=second))
        assert (ended.returncode, told in ended.stderr) == (1, True)
        assert is_served(socket)
        assert program.end(signal.SIGTERM) == 0
