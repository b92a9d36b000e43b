"""The way to the API server: connections that are kept and replaced, TLS, proxies, several requests at once."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import ApiDeniedError, ApiError, ApiNotFoundError, ApiUnavailableError, SettingsError
from dra_driver.k8s import connections
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import Connection
from dra_driver.k8s.connections import _Connection
from dra_driver.k8s.objects.core import NODES, Node
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.sandbox.apiserver import ApiServer

LIMIT = 20.0


class Server(ThreadingHTTPServer):
    """Answers every GET with a Node that is called like the last part of the path; notes requests and connections."""

    daemon_threads = True

    def __init__(self, *, protocol: str = "HTTP/1.1", before: Callable[[], object] | None = None) -> None:
        self.targets: list[str] = []
        self.connections = 0
        self.open: list[socket.socket] = []
        wait = before or list

        class Handler(BaseHTTPRequestHandler):
            protocol_version = protocol
            server: Server

            def setup(self) -> None:
                self.server.connections += 1
                self.server.open.append(self.request)
                super().setup()

            def do_GET(self) -> None:
                self.server.targets.append(self.path)
                wait()
                if "watch=true" in self.path:
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"1\r\n\n\r\n")
                    self.rfile.read(1)
                    return
                body = json.dumps({"metadata": {"name": self.path.rsplit("/", 1)[-1]}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def hang_up(self) -> None:
        for connection in self.open:
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def serving(server: Server, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def talking(connection: Connection) -> Iterator[Client]:
    client = Client(connection, "test")
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of kubernetes.internal and of nobody else; with its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run(
        [*made, "-addext", "subjectAltName=DNS:kubernetes.internal", "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(Server(), context) as server:
        yield server


def trusted(server: Server, certificate: Path, **more: Any) -> Connection:
    return Connection(f"https://127.0.0.1:{server.port}", ca_file=certificate, tls_server_name="kubernetes.internal", **more)


def test_one_connection_serves_one_request_after_another() -> None:
    with serving(Server()) as server, talking(Connection(f"http://127.0.0.1:{server.port}")) as client:
        assert [client.get(NODES, f"n{index}").metadata.name for index in range(5)] == [f"n{index}" for index in range(5)]
        assert server.connections == 1


def test_a_server_that_keeps_no_connection_gets_a_new_one_for_each_request() -> None:
    with serving(Server(protocol="HTTP/1.0")) as server, talking(Connection(f"http://127.0.0.1:{server.port}")) as client:
        assert [client.get(NODES, name).metadata.name for name in ("a", "b")] == ["a", "b"]
        assert server.connections == 2


def test_an_idle_connection_that_the_server_has_ended_is_not_used_again() -> None:
    with ExitStack() as undo:
        server = undo.enter_context(serving(Server()))
        client = undo.enter_context(talking(Connection(f"http://127.0.0.1:{server.port}")))
        assert client.get(NODES, "n1", deadline=0).metadata.name == "n1"
        server.hang_up()
        assert client.get(NODES, "n2", deadline=0).metadata.name == "n2"  # one attempt: on the old connection it would fail
        assert server.connections == 2


def test_the_path_of_the_address_is_kept() -> None:
    with serving(Server()) as server, talking(Connection(f"http://127.0.0.1:{server.port}/clusters/c1")) as client:
        client.get(NODES, "n1")
        assert server.targets == ["/clusters/c1/api/v1/nodes/n1"]


def test_tls_trusts_the_ca_file_and_checks_the_name(secure: Server, certificate: Path) -> None:
    with talking(trusted(secure, certificate)) as client:
        assert [client.get(NODES, name).metadata.name for name in ("a", "b")] == ["a", "b"]
    assert secure.connections == 1
    address = f"https://127.0.0.1:{secure.port}"
    for connection, told in (
        (Connection(address, ca_file=certificate), "not valid for '127.0.0.1'"),
        (Connection(address, tls_server_name="kubernetes.internal"), "self-signed certificate|self signed certificate"),
    ):
        with talking(connection) as client, pytest.raises(ApiUnavailableError, match=told):
            client.get(NODES, "n1", deadline=0)


def test_without_verification_any_certificate_will_do(secure: Server) -> None:
    with talking(Connection(f"https://127.0.0.1:{secure.port}", verify=False)) as client:
        assert client.get(NODES, "n1").metadata.name == "n1"


def test_a_watch_over_tls_can_be_stopped_by_another_thread(secure: Server, certificate: Path) -> None:
    with talking(trusted(secure, certificate)) as client, ThreadPoolExecutor() as pool:
        watch = client.watch(NODES, "1")
        watching = pool.submit(list, watch)
        watch.stop()
        assert watching.result(LIMIT) == []


def test_several_objects_are_asked_for_at_once() -> None:
    together = threading.Barrier(5)
    with (
        serving(Server(before=lambda: together.wait(LIMIT))) as server,
        talking(Connection(f"http://127.0.0.1:{server.port}")) as client,
    ):
        names = [f"n{index}" for index in range(5)]
        found = client.get_all(NODES, [("", name) for name in names], deadline=LIMIT)
        assert [one.metadata.name for one in found if isinstance(one, Node)] == names
        assert server.connections == 5


def test_each_of_several_objects_has_its_own_outcome(api: ApiServer) -> None:
    with talking(api.connection) as client:
        for name in ("a", "b", "c", "d"):
            client.create(NODES, Node(metadata=ObjectMeta(name=name)))
        api.fail("GET", "/nodes/b", status=500, times=2)
        api.fail("GET", "/nodes/c", status=403, message="not you", times=None)
        api.lose_answer("GET", "/nodes/d")
        a, missing, b, c, d = client.get_all(NODES, [("", name) for name in ("a", "missing", "b", "c", "d")], deadline=LIMIT)
    assert isinstance(a, Node)
    assert isinstance(missing, ApiNotFoundError)
    assert isinstance(b, Node)
    assert isinstance(c, ApiDeniedError)
    assert str(c) == "not you"
    assert isinstance(d, Node)


def test_several_objects_of_a_server_that_is_away_cost_one_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with talking(Connection(f"http://127.0.0.1:{port}")) as client:
        found = client.get_all(NODES, [("", "a"), ("", "b")], deadline=0.5)
    assert [type(one) for one in found] == [ApiUnavailableError] * 2


def test_several_objects_of_a_server_that_is_silent_cost_one_deadline(api: ApiServer) -> None:
    api.hang("GET", "/nodes", times=None)
    with talking(api.connection) as client:
        began = time.monotonic()
        found = client.get_all(NODES, [("", f"n{index}") for index in range(8)], deadline=1.0)
        took = time.monotonic() - began
    assert [type(one) for one in found] == [ApiUnavailableError] * 8
    assert took < 4, "not a second for each"


class Proxy:
    """An HTTP proxy that only tunnels: CONNECT, then bytes in both directions. `asked` are the first lines that it got."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._open = ExitStack()
        self._listener = self._open.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._open.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        self.asked.append(head.decode().splitlines()[0])
        host, _, port = self.asked[0].split()[1].rpartition(":")
        server = socket.create_connection((host, int(port)))
        self._open.callback(client.close)
        self._open.callback(server.close)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass


def test_a_proxy_tunnels_to_a_server_with_tls(secure: Server, certificate: Path) -> None:
    proxy = Proxy()
    try:
        with talking(trusted(secure, certificate, proxy=proxy.address)) as client:
            assert [client.get(NODES, name).metadata.name for name in ("a", "b")] == ["a", "b"]
    finally:
        proxy.close()
    assert [line.rpartition(" ")[0] for line in proxy.asked] == [f"CONNECT 127.0.0.1:{secure.port}"]
    assert secure.targets == ["/api/v1/nodes/a", "/api/v1/nodes/b"]


def test_a_proxy_is_asked_for_the_whole_address_of_a_server_without_tls() -> None:
    with serving(Server()) as proxy, talking(Connection("http://api.example/base", proxy=f"http://127.0.0.1:{proxy.port}")) as client:
        assert client.get(NODES, "n1").metadata.name == "n1"
        assert proxy.targets == ["http://api.example/base/api/v1/nodes/n1"]


@pytest.mark.parametrize("proxy", ["https://proxy:3128", "socks5://proxy:1080", "proxy:3128"])
def test_other_proxies_are_refused(proxy: str) -> None:
    with pytest.raises(SettingsError, match=rf"proxy '{proxy}' of API server http://api.example: need http://host\[:port\]"):
        Client(Connection("http://api.example", proxy=proxy), "test")


class Teller:
    """Answers each request with what `tell` makes of its path: raw bytes, the last of them when `rest` is set."""

    def __init__(self, tell: Callable[[str], tuple[bytes, bytes]]) -> None:
        self.rest = threading.Event()
        self._tell = tell
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connection = Connection(f"http://127.0.0.1:{self._listener.getsockname()[1]}")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.rest.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one, one.makefile("rb") as lines, suppress(OSError):
            while first := lines.readline():
                while lines.readline() not in {b"\r\n", b""}:
                    pass
                now, later = self._tell(first.split()[1].decode())
                one.sendall(now)
                if later:
                    self.rest.wait(LIMIT)
                    one.sendall(later)


def ok(name: str) -> bytes:
    body = json.dumps({"metadata": {"name": name}}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@contextmanager
def telling(tell: Callable[[str], tuple[bytes, bytes]]) -> Iterator[tuple[Teller, Client]]:
    teller = Teller(tell)
    try:
        with talking(teller.connection) as client:
            yield teller, client
    finally:
        teller.close()


def last(path: str) -> str:
    return path.rpartition("/")[2]


def test_an_answer_that_comes_after_its_time_is_nobody_elses() -> None:
    with telling(lambda path: (b"", ok("late")) if last(path) == "late" else (ok(last(path)), b"")) as (teller, client):
        with pytest.raises(ApiUnavailableError, match="timed out"):
            client.get(NODES, "late", deadline=0.2)
        teller.rest.set()
        assert [client.get(NODES, name, deadline=LIMIT).metadata.name for name in ("a", "b")] == ["a", "b"]


def test_an_interim_answer_is_none_and_what_follows_it_is_nobody_elses() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    with telling(lambda path: (early, ok("first")) if last(path) == "first" else (ok(last(path)), b"")) as (teller, client):
        found: list[Node | ApiError] = client.get_all(NODES, [("", "first"), ("", "other")], deadline=0.3)
        assert isinstance(found[0], ApiUnavailableError)
        assert isinstance(found[1], Node)
        teller.rest.set()
        assert client.get(NODES, "second", deadline=0).metadata.name == "second"


@pytest.mark.parametrize("body", [b"{}", b'{"kind": "Status", "code": 200}', b'{"metadata": {"name": "other"}}', b'{"items": []}'])
def test_an_answer_about_something_else_is_none(body: bytes) -> None:
    with telling(lambda path: (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), b"")) as (_, client):
        with pytest.raises(ApiUnavailableError, match=r"GET /api/v1/nodes/mine at .*: the answer is not that object"):
            client.get(NODES, "mine", deadline=LIMIT)
        assert [type(one) for one in client.get_all(NODES, [("", "mine")], deadline=LIMIT)] == [ApiUnavailableError]


@pytest.mark.parametrize(
    "cut", [ok("mine")[:-1], b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"met\r\n', b'HTTP/1.1 200 OK\r\n\r\n{"metad', b"HTTP/1.1 2"]
)
def test_a_part_of_an_answer_is_none(cut: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    with one:
                        one.recv(1 << 16)
                        one.sendall(cut)

        threading.Thread(target=serve, daemon=True).start()
        with talking(Connection(f"http://127.0.0.1:{listener.getsockname()[1]}")) as client, pytest.raises(ApiError):
            client.get(NODES, "mine", deadline=0)


def test_several_objects_of_a_server_that_cannot_be_reached_cost_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(_Connection):
        def connect(self) -> None:
            time.sleep(self.timeout or LIMIT)  # as a server does that answers no SYN
            raise TimeoutError("timed out")

    monkeypatch.setattr(connections, "_Connection", Unreachable)
    with talking(Connection("http://127.0.0.1:1")) as client:
        began = time.monotonic()
        found = client.get_all(NODES, [("", f"n{index}") for index in range(6)], deadline=0.5)
        took = time.monotonic() - began
    assert [type(one) for one in found] == [ApiUnavailableError] * 6
    assert took < 2.5, "not half a second for each"
