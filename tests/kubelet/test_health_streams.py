"""DRAResourceHealth on a real socket: what is sent and when, and that streams take nothing from the calls of claims."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_driver.errors import ClaimRetryError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import Device
from dra_driver.kubelet import health_service, server, service
from dra_driver.kubelet._proto import dra_health_v1_pb2, dra_health_v1_pb2_grpc, dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc
from dra_driver.kubelet.health import HealthBoard
from dra_driver.kubelet.health_service import MOST_STREAMS, HealthStreams
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.calls import CallRecorder
from dra_driver.sandbox.kubelet.plugin import ClaimReference, DraPlugin
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from dra_driver.sandbox.kubelet.timing import Timing
from tests.kubelet.toy import DRIVER, NODE, ToyDriver, allocated, result

V1 = (dra_health_v1_pb2, dra_health_v1_pb2_grpc)
ALPHA = (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc)
HANG = 20.0


class Reader:
    """A stream whose messages a thread reads; `ended` has its status."""

    def __init__(self, socket: Path, version: Any = V1) -> None:
        messages, services = version
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])
        self.call = services.DRAResourceHealthStub(self.channel).NodeWatchResources(messages.NodeWatchResourcesRequest())
        self.messages: queue.Queue[Any] = queue.Queue()
        self.ended: queue.Queue[grpc.StatusCode] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self) -> dict[str, tuple[int, str]]:
        """The next message: health and text by device."""
        return {one.device.device_name: (one.health, one.message) for one in self.messages.get(timeout=HANG).devices}

    def close(self) -> None:
        self.channel.close()
        self._thread.join()

    def _read(self) -> None:
        try:
            for message in self.call:
                self.messages.put(message)
        except grpc.RpcError:
            pass
        self.ended.put(self.call.code())


Abandon = Callable[[Path], grpc.Channel]


@pytest.fixture
def read() -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def begin(socket: Path, version: Any = V1) -> Reader:
        readers.append(Reader(socket, version))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


@pytest.fixture
def abandon() -> Iterator[Abandon]:
    """Opens a stream that nobody reads, on a connection of its own."""
    kept: list[tuple[grpc.Channel, Any]] = []

    def begin(socket: Path) -> grpc.Channel:
        channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])
        method = "/v1.DRAResourceHealth/NodeWatchResources"
        kept.append((channel, channel.unary_stream(method, request_serializer=bytes, response_deserializer=bytes)(b"", wait_for_ready=True)))
        return channel

    yield begin
    for channel, _ in kept:
        channel.close()


@pytest.fixture
def board() -> HealthBoard:
    return HealthBoard(DRIVER)


@pytest.fixture
def streams(board: HealthBoard) -> HealthStreams:
    return HealthStreams(board)


@pytest.fixture
def socket(short: Path, streams: HealthStreams) -> Iterator[Path]:
    # One worker, which streams must not need: gRPC takes their threads from an attribute that is no public name.
    one = server.SocketServer(short / "dra.sock", workers=1)
    one.add(streams.add_to)
    one.start()
    yield one.path
    streams.close()
    one.stop(0)


def wait_count(streams: HealthStreams, count: int) -> None:
    """Until so many streams are open."""
    with streams._changed:
        assert streams._changed.wait_for(lambda: streams.count == count, HANG), f"{streams.count} streams are open, not {count}"


@pytest.mark.parametrize("version", [V1, ALPHA], ids=["v1", "v1alpha1"])
def test_all_devices_are_sent_on_connect_and_after_each_change(board: HealthBoard, socket: Path, read: Callable[..., Reader], version: Any) -> None:
    board.report(NODE, "a", True)
    board.report(NODE, "b", False, "broken")
    board.report(NODE, "c", None)
    reader = read(socket, version)
    first = reader.messages.get(timeout=HANG)
    assert [(one.device.pool_name, one.device.device_name, one.health, one.message) for one in first.devices] == [
        (NODE, "a", 1, ""),
        (NODE, "b", 2, "broken"),
        (NODE, "c", 0, ""),
    ]
    assert {one.health_check_timeout_seconds for one in first.devices} == {30}
    assert all(abs(one.last_updated_time - time.time()) < 60 for one in first.devices)
    board.report(NODE, "a", False, "broken too", fatal=True)
    assert reader.next() == {"a": (2, "broken too"), "b": (2, "broken"), "c": (0, "")}


def test_without_changes_the_list_is_sent_again(
    board: HealthBoard, socket: Path, read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert health_service.RESEND <= 15
    monkeypatch.setattr(health_service, "RESEND", 0.01)
    board.report(NODE, "a", True)
    reader = read(socket)
    assert [reader.next() for _ in range(5)] == [{"a": (1, "")}] * 5


@pytest.mark.parametrize(("length", "text"), [(1024, "x" * 1024), (1025, "x" * 1021 + "...")])
def test_a_message_is_cut_to_what_the_kubelet_shows(board: HealthBoard, socket: Path, read: Callable[..., Reader], length: int, text: str) -> None:
    board.report(NODE, "a", False, "x" * length)
    board.report(NODE, "b", False, "ü" * length)
    shown = read(socket).next()
    assert shown["a"] == (2, text)
    assert len(shown["b"][1].encode()) <= 1024
    assert shown["b"][1].rstrip(".").strip("ü") == ""


def test_an_instance_that_does_not_lead_sends_nothing_until_it_does(
    board: HealthBoard, socket: Path, read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch, streams: HealthStreams
) -> None:
    leading = threading.Event()
    monkeypatch.setattr(HealthBoard, "leads", property(lambda _: leading.is_set()))
    board.report(NODE, "a", True)
    reader = read(socket)
    wait_count(streams, 1)
    board.report(NODE, "a", False, "old news", fatal=True)
    leading.set()
    board.report(NODE, "a", False, "news", fatal=True)
    assert reader.next() == {"a": (2, "news")}


def test_one_stream_too_many_ends_the_oldest(
    board: HealthBoard, streams: HealthStreams, socket: Path, read: Callable[..., Reader], caplog: pytest.LogCaptureFixture
) -> None:
    board.report(NODE, "a", True)
    readers = []
    for _ in range(MOST_STREAMS + 1):
        readers.append(read(socket))
        readers[-1].next()
    readers[0].ended.get(timeout=HANG)
    wait_count(streams, MOST_STREAMS)
    board.report(NODE, "a", False, "told to all the others", fatal=True)
    for reader in readers[1:]:
        assert reader.next() == {"a": (2, "told to all the others")}
    assert caplog.messages.count("too many health streams, the oldest ends") == 1


def test_a_client_that_goes_away_frees_its_stream(
    board: HealthBoard, streams: HealthStreams, socket: Path, read: Callable[..., Reader], abandon: Abandon
) -> None:
    board.report(NODE, "a", True)
    channel = abandon(socket)
    reader = read(socket)
    wait_count(streams, 2)
    channel.close()
    wait_count(streams, 1)
    reader.call.cancel()
    wait_count(streams, 0)


def big(board: HealthBoard, devices: int = 200) -> None:
    """So much to tell that gRPC takes one message for a stream that nobody reads, and the second one has to wait."""
    for number in range(devices):
        board.report(NODE, f"toy-{number}", False, f"{number}" * 1024)


def test_the_oldest_ends_also_when_nobody_reads_it(
    board: HealthBoard, streams: HealthStreams, socket: Path, read: Callable[..., Reader], abandon: Abandon, monkeypatch: pytest.MonkeyPatch
) -> None:
    big(board, 2000)
    monkeypatch.setattr(health_service, "RESEND", 0.01)
    made, make = threading.Semaphore(0), health_service._full_list

    def counted(*arguments: Any) -> Any:
        made.release()
        return make(*arguments)

    monkeypatch.setattr(health_service, "_full_list", counted)
    for _ in range(MOST_STREAMS):
        abandon(socket)
    for _ in range(2 * MOST_STREAMS):
        assert made.acquire(timeout=HANG)
    readers = [read(socket) for _ in range(MOST_STREAMS)]
    for reader in readers:
        assert len(reader.next()) == 2000


def test_streams_end_promptly_also_those_that_nobody_reads(
    board: HealthBoard, streams: HealthStreams, socket: Path, read: Callable[..., Reader], abandon: Abandon
) -> None:
    big(board)
    for _ in range(3):
        abandon(socket)
    reader = read(socket)
    reader.next()
    wait_count(streams, 4)
    begin = time.monotonic()
    streams.close(grace=0.2)
    wait_count(streams, 0)
    assert time.monotonic() - begin < HANG / 2
    assert reader.ended.get(timeout=HANG) is grpc.StatusCode.OK
    late = read(socket)
    assert late.ended.get(timeout=HANG) is grpc.StatusCode.OK
    assert late.messages.empty()


@pytest.fixture
def plugin(client: Client, api: ApiServer, short: Path, board: HealthBoard) -> Iterator[KubeletPlugin]:
    (short / "plugins_registry").mkdir()
    paths = PluginPaths(short / "plugins" / DRIVER, short / "plugins_registry", short / "cdi")
    one = KubeletPlugin(ToyDriver(), Client(api.connection, "plugin"), node=NODE, paths=paths, health=board)
    one.publisher.set_devices([Device(name=f"toy-{number}") for number in range(8)])
    one.start()
    yield one
    one.stop()


def test_twenty_abandoned_streams_keep_no_call_from_its_thread(
    plugin: KubeletPlugin, client: Client, short: Path, board: HealthBoard, read: Callable[..., Reader], abandon: Abandon, api: ApiServer
) -> None:
    big(board)
    socket = short / "plugins" / DRIVER / "dra.sock"
    held = allocated(client, "held", result("toy-0"))
    kubelet = DraPlugin(DRIVER, str(socket), "v1.DRAPlugin", recorder=CallRecorder(), timeout=HANG)
    kubelet.prepare([ClaimReference(held.namespace, held.name, held.uid)])
    for _ in range(20):
        abandon(socket)
    slow = api.hang("GET", "resourceclaims", times=20)

    def wait(number: int) -> None:
        with contextlib.suppress(ClaimRetryError):
            kubelet.prepare([ClaimReference("default", "x", f"uid-{number}")])

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(20)]
    for thread in waiting:
        thread.start()
    assert api.wait_for(lambda: slow.hits == 20)
    begin = time.monotonic()
    kubelet.unprepare([ClaimReference(held.namespace, held.name, held.uid)])
    other = allocated(client, "other", result("toy-1"))
    kubelet.prepare([ClaimReference(other.namespace, other.name, other.uid)])
    assert len(read(socket).next()) == 200
    assert time.monotonic() - begin < HANG / 2
    slow.release()
    for thread in waiting:
        thread.join()
    kubelet.close()


def test_services_are_advertised_in_the_order_that_every_kubelet_takes(plugin: KubeletPlugin, client: Client, short: Path) -> None:
    kubelet = StandInKubelet(client, NODE, short)
    with kubelet:
        assert kubelet.wait_registered(DRIVER)
        assert kubelet.calls[0].response is not None
        assert kubelet.calls[0].response["supported_versions"] == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]


@pytest.mark.parametrize(
    ("release", "stream"), [("1.34", ""), ("1.35", ""), ("1.36", "v1alpha1.DRAResourceHealth"), ("1.37", "v1.DRAResourceHealth")]
)
def test_it_works_with_the_kubelets_of_all_releases(
    plugin: KubeletPlugin, client: Client, short: Path, board: HealthBoard, release: str, stream: str
) -> None:
    board.report(NODE, "toy-0", True)
    with StandInKubelet(client, NODE, short, timing=Timing(health_retry=0.01), release=release) as kubelet:
        assert kubelet.wait_registered(DRIVER)
        node_plugin = kubelet.registry.plugin(DRIVER)
        assert node_plugin.service == "v1.DRAPlugin"
        claim = allocated(client, "c", result("toy-0"))
        assert node_plugin.prepare([ClaimReference(claim.namespace, claim.name, claim.uid)])[claim.uid]
        node_plugin.unprepare([ClaimReference(claim.namespace, claim.name, claim.uid)])
        if not stream:
            assert node_plugin.health is None
            return
        assert node_plugin.health is not None
        assert node_plugin.health.service == stream
        assert kubelet.health.wait_for(lambda: kubelet.health.of(DRIVER, NODE, "toy-0").health == "Healthy")
        board.report(NODE, "toy-0", False, "lost", fatal=True)
        assert kubelet.health.wait_for(lambda: kubelet.health.of(DRIVER, NODE, "toy-0").message == "lost")
        begin = time.monotonic()
        plugin.stop()
        assert time.monotonic() - begin < HANG / 2
        assert kubelet.health.wait_for(lambda: kubelet.health.of(DRIVER, NODE, "toy-0").health == "Unknown")


def test_a_driver_without_health_advertises_and_serves_none(client: Client, api: ApiServer, short: Path) -> None:
    paths = PluginPaths(short / "plugins" / DRIVER, short / "plugins_registry", short / "cdi")
    with StandInKubelet(client, NODE, short, timing=Timing(health_retry=0.01), release="1.36") as kubelet:
        one = KubeletPlugin(ToyDriver(), Client(api.connection, "plugin"), node=NODE, paths=paths)
        one.start()
        assert kubelet.wait_registered(DRIVER)
        watch = kubelet.registry.plugin(DRIVER).health
        assert watch is not None
        assert kubelet.health.wait_for(lambda: len(watch.attempts) >= 2)
        assert set(watch.attempts) == {"UNIMPLEMENTED"}
        assert kubelet.calls[0].response is not None
        assert kubelet.calls[0].response["supported_versions"] == list(service.VERSIONS)
        one.stop()
