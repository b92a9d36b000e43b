"""The sockets of a running plugin: kept there, probed, and taken away without costing a call."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device
from dra_driver.kubelet import presence, registration, socket_probes
from dra_driver.kubelet._proto import plugin_registration_pb2 as registration_pb2
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as registration_pb2_grpc
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import SocketServer, dial, is_served
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.plugin import ClaimReference
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from tests.kubelet.toy import DRIVER, NODE, ToyDriver, allocated, result

T = TypeVar("T")

LIMIT = 20.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LOOK_PERIOD", 0.02)
    monkeypatch.setattr(presence, "DIAL_PERIOD", 0.0)


@pytest.fixture
def kubelet(client: Client, short: Path) -> Iterator[StandInKubelet]:
    with StandInKubelet(client, NODE, short) as one:
        yield one


Start = Callable[..., KubeletPlugin]


@pytest.fixture
def start(client: Client, api: ApiServer, short: Path) -> Iterator[Start]:
    started: list[KubeletPlugin] = []

    def begin(**options: Any) -> KubeletPlugin:
        paths = PluginPaths(short / "plugins" / DRIVER, short / "plugins_registry", short / "cdi")
        plugin = KubeletPlugin(ToyDriver(), Client(api.connection, "plugin"), node=NODE, paths=paths, **options)
        plugin.publisher.set_devices([Device(name=f"toy-{number}") for number in range(8)])
        plugin.start()
        started.append(plugin)
        return plugin

    yield begin
    for plugin in started:
        plugin.stop()


def until(condition: Callable[[], T], limit: float = LIMIT) -> T:
    """For what tells nobody that it has changed; returns what is true then."""
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)
    return found


def samples(plugin: KubeletPlugin) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for metric in plugin.metrics.collect() for sample in metric.samples}


def health_stub(channel: grpc.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


def prepare(kubelet: StandInKubelet, client: Client, name: str, device: str) -> ClaimReference:
    claim = allocated(client, name, result(device))
    reference = ClaimReference(claim.namespace, claim.name, claim.uid)
    kubelet.registry.plugin(DRIVER).prepare([reference])
    return reference


def test_a_running_plugin_is_ready_and_alive(start: Start, kubelet: StandInKubelet) -> None:
    plugin = start()
    until(lambda: plugin.probes.readiness().good)
    names = [line.split(":")[0] for line in plugin.probes.readiness().text.splitlines()]
    assert names == ["other driver", "sockets", "registration", "journal", "slices", "lease"]
    assert plugin.probes.health().good
    assert {"sweep", "watch-slices", "publish-slices", "sockets"} <= {line.split(":")[0] for line in plugin.probes.health().text.splitlines()}
    assert samples(plugin)["dra_driver_registered",] == 1


@pytest.mark.parametrize("which", ["service", "registrar"])
def test_a_socket_that_vanishes_is_made_anew_and_calls_go_on(start: Start, kubelet: StandInKubelet, client: Client, which: str) -> None:
    plugin = start()
    assert plugin.registrar.registered.wait(LIMIT)
    claim = prepare(kubelet, client, "c", "toy-0")
    path = getattr(plugin.instance.sockets, which)
    path.unlink()
    until(lambda: is_served(path))
    until(lambda: plugin.registrar.registered.is_set() and plugin.probes.readiness().good)
    assert kubelet.wait_registered(DRIVER)
    until(lambda: kubelet.registry.plugin(DRIVER).connected)
    kubelet.registry.plugin(DRIVER).unprepare([claim])
    prepare(kubelet, client, "d", "toy-0")
    assert samples(plugin)["dra_driver_socket_renewals_total", which] == 1
    assert plugin.probes.health().good


def test_a_call_that_runs_when_the_service_socket_vanishes_is_answered(start: Start, kubelet: StandInKubelet, client: Client, api: ApiServer) -> None:
    plugin = start()
    assert plugin.registrar.registered.wait(LIMIT)
    slow = api.hang("GET", "resourceclaims", times=1)
    outcome: list[object] = []

    def call() -> None:
        try:
            outcome.append(prepare(kubelet, client, "c", "toy-0"))
        except Exception as error:  # noqa: BLE001
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert api.wait_for(lambda: slow.hits == 1)
    path = plugin.instance.sockets.service
    path.unlink()
    until(lambda: is_served(path))
    slow.release()
    thread.join(LIMIT)
    assert isinstance(outcome[0], ClaimReference), outcome


def test_a_dead_socket_in_our_place_is_replaced(start: Start, kubelet: StandInKubelet) -> None:
    plugin = start()
    path = plugin.instance.sockets.service
    other = path.with_name("other")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(other))
    other.replace(path)
    until(lambda: is_served(path))
    until(lambda: plugin.probes.readiness().good)


def test_a_process_that_has_taken_our_place_is_left_alone_and_told(start: Start, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_probes, "DEADLINE", 0.5)
    plugin = start()
    until(lambda: plugin.probes.readiness().good)
    path = plugin.instance.sockets.service
    other = path.with_name("other")
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(str(other))
        thief.listen()
        inode = other.stat().st_ino
        other.rename(path)
        until(lambda: "is served by another process" in plugin.probes.readiness().text)
        until(lambda: plugin.presence._failures > presence.FORGIVEN)
        assert path.stat().st_ino == inode
        assert plugin.probes.health().good, "a restart cures nothing"
    until(lambda: plugin.probes.readiness().good)


def test_a_directory_that_was_replaced_is_a_reason_to_be_restarted(start: Start, kubelet: StandInKubelet, short: Path) -> None:
    plugin = start()
    until(lambda: plugin.probes.readiness().good)
    shutil.move(short / "plugins" / DRIVER, short / "moved")
    until(lambda: not plugin.probes.health().good)
    assert "the plugin directory was removed or replaced" in plugin.probes.health().text
    assert not plugin.probes.readiness().good
    assert not (short / "plugins" / DRIVER).exists(), "the journal is not there, so nothing may be served from there"


def test_a_registry_directory_that_is_gone_is_a_reason_to_be_restarted(start: Start, kubelet: StandInKubelet, short: Path) -> None:
    plugin = start()
    until(lambda: plugin.probes.readiness().good)
    shutil.rmtree(short / "plugins_registry")
    until(lambda: not plugin.probes.health().good)
    assert "reg.sock: cannot be created" in plugin.probes.health().text
    (short / "plugins_registry").mkdir()
    until(lambda: plugin.probes.health().good and plugin.probes.readiness().good)


def test_a_service_that_does_not_answer_is_a_reason_to_be_restarted(start: Start, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_probes, "DEADLINE", 0.05)
    hang = threading.Event()

    class Wall(grpc.ServerInterceptor):
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = continuation(details)
            if not details.method.endswith("NodePrepareResources"):
                return handler

            def method(request: Any, context: Any) -> Any:
                hang.wait(LIMIT)
                return handler.unary_unary(request, context)

            return grpc.unary_unary_rpc_method_handler(method, handler.request_deserializer, handler.response_serializer)

    plugin = start(interceptors=[Wall()])
    until(lambda: not plugin.probes.health().good)
    assert "dra.sock does not answer: DEADLINE_EXCEEDED" in plugin.probes.health().text
    hang.set()
    until(lambda: plugin.probes.health().good and plugin.probes.readiness().good)


def test_the_standard_health_service_answers_on_the_service_socket(start: Start, kubelet: StandInKubelet) -> None:
    plugin = start()
    with dial(plugin.instance.sockets.service) as channel:
        answer = health_stub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_client_with_an_authority_of_its_own_is_served(start: Start, kubelet: StandInKubelet) -> None:
    plugin = start()
    for authority in ("localhost", "", "%2Ftmp%2Fdra.sock"):
        options = [("grpc.default_authority", authority)] if authority else []
        with grpc.insecure_channel(f"unix:{plugin.instance.sockets.service}", options=options) as channel:
            assert health_stub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)


def test_a_kubelet_that_never_comes_is_told(client: Client, start: Start, short: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    (short / "plugins_registry").mkdir()
    monkeypatch.setattr(registration, "PATIENCE", 0.1)
    plugin = start()
    until(lambda: "does it run, and is the registry directory its own?" in plugin.probes.readiness().text)
    until(lambda: plugin.presence._failures == 0)
    for _ in range(3):
        assert "the kubelet has not registered the driver for" in plugin.registrar.problem()
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.message for record in told] == ["the kubelet does not register the driver"]
    assert plugin.probes.health().good


def test_a_refusal_is_told_once_counted_and_over_when_the_kubelet_accepts(caplog: pytest.LogCaptureFixture) -> None:
    registrar = Registrar(DRIVER, Path("/dra.sock"), ["v1.DRAPlugin"])
    context: Any = None
    for error in ("no", "no", "never"):
        registrar.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=False, error=error), context)
    assert registrar.problem() == "the kubelet refused the registration: never"
    assert registrar.refusals == 3
    assert [vars(record)["error"] for record in caplog.records] == ["no", "never"]
    registrar.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=True), context)
    assert registrar.problem() == ""


def foreign(path: Path) -> SocketServer:
    """What NVIDIA's own plugin does: the same name, often the same file."""
    registrar = Registrar(DRIVER, Path("/elsewhere/dra.sock"), ["v1.DRAPlugin"])
    server = SocketServer(path, workers=1)
    server.add(partial(registration_pb2_grpc.add_RegistrationServicer_to_server, registrar))
    server.start()
    return server


@pytest.mark.parametrize("name", [f"{DRIVER}-reg.sock", f"{DRIVER}-0f3b1a1e-93a6-4c5d-8a34-0cbd9a1c6a01-reg.sock", "dra-abc-reg.sock"])
@pytest.mark.parametrize("instance", ["", "uid-1"])
def test_beside_another_driver_of_our_name_nothing_is_published_or_registered(
    start: Start, client: Client, api: ApiServer, short: Path, name: str, instance: str
) -> None:
    (short / "plugins_registry").mkdir()
    other = foreign(short / "plugins_registry" / name)
    plugin = start(instance=instance)
    until(lambda: f"another driver of the name {DRIVER} is registered at" in plugin.probes.readiness().text)
    plugin.publisher.wake()
    until(lambda: samples(plugin)["dra_driver_other_driver",] == 1)
    assert not plugin.publisher.published.wait(0.3)
    assert api.requests("POST", "resourceslices") == []
    assert plugin.probes.health().good
    assert {path.name for path in (short / "plugins_registry").iterdir()} == {name}
    other.stop(0)
    assert plugin.publisher.published.wait(LIMIT)
    until(lambda: is_served(plugin.instance.sockets.registrar))
    assert plugin.presence.stranger == ""


def test_another_driver_that_comes_later_stops_us_from_publishing(start: Start, kubelet: StandInKubelet, client: Client, short: Path) -> None:
    plugin = start()
    until(lambda: plugin.probes.readiness().good)
    other = foreign(short / "plugins_registry" / "late-reg.sock")
    until(lambda: plugin.presence.stranger)
    client.delete_collection(RESOURCE_SLICES)
    plugin.publisher.published.clear()
    assert not plugin.publisher.published.wait(0.3)
    assert not client.list(RESOURCE_SLICES).items
    assert not plugin.probes.readiness().good
    other.stop(0)
    assert plugin.publisher.published.wait(LIMIT)


def test_a_stop_waits_for_running_calls_before_it_deregisters(
    start: Start, kubelet: StandInKubelet, client: Client, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LAST_CALLS", LIMIT)
    plugin = start()
    assert plugin.registrar.registered.wait(LIMIT)
    slow = api.hang("GET", "resourceclaims", times=1)
    outcome: list[object] = []

    def call() -> None:
        try:
            outcome.append(prepare(kubelet, client, "c", "toy-0"))
        except Exception as error:  # noqa: BLE001
            outcome.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    assert api.wait_for(lambda: slow.hits == 1)
    stopping = threading.Thread(target=plugin.stop)
    stopping.start()
    assert plugin.instance.sockets.registrar.exists()
    slow.release()
    calling.join(LIMIT)
    stopping.join(LIMIT)
    assert isinstance(outcome[0], ClaimReference), outcome
    assert not plugin.instance.sockets.registrar.exists()


def test_the_service_answers_until_the_kubelet_has_let_go(start: Start, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = start()
    assert plugin.registrar.registered.wait(LIMIT)
    until(lambda: plugin._service.connections() == 1)
    seen: list[tuple[int, bool, bool]] = []
    unlink = SocketServer.unlink

    def told(self: SocketServer) -> None:
        if self is plugin._service:
            seen.append((self.connections(), is_served(self.path), plugin.instance.sockets.registrar.exists()))
        unlink(self)

    monkeypatch.setattr(SocketServer, "unlink", told)
    plugin.stop()
    assert seen == [(0, True, False)]


def test_a_stop_is_bounded_when_the_kubelet_hangs_with_an_open_stream(
    start: Start, short: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(presence, "LET_GO", 0.2)
    (short / "plugins_registry").mkdir()
    plugin = start()
    with dial(plugin.instance.sockets.service) as channel:
        stream = health_stub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
        began = time.monotonic()
        plugin.stop()
        assert time.monotonic() - began < 5
        left = [one.status for one in _drained(stream)]
    assert left in ([], [health_pb2.HealthCheckResponse.NOT_SERVING])
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == ["the kubelet has not let go of the service socket"]


def _drained(stream: Any) -> Iterator[Any]:
    try:
        yield from stream
    except grpc.RpcError:
        return
