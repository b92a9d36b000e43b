"""HTTP/1.1 connections to one server: opened when they are needed, kept for the next request.

A request is sent and its answer read in two steps, so that one thread can have many on their way.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from dra_driver.errors import SettingsError
from dra_driver.k8s import http11
from dra_driver.k8s.config import Connection

CONNECT_TIMEOUT = 5.0
_MOST_KEPT = 64

_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class NotSentError(OSError):
    """The request was certainly not sent: there was no connection, or it is none that can be sent."""


class Connections:
    """The connections to the server of `connection`. Thread-safe; SettingsError when they cannot be as it says.

    Whatever goes wrong with one is an OSError: NotSentError, TimeoutError when the server is silent, BrokenAnswerError, and those of sockets.
    """

    def __init__(self, connection: Connection) -> None:
        self._way = _way(connection)
        self._idle: list[_Connection] = []  # the one used last is taken first; append and pop are atomic
        self._closed = False

    def send(self, method: str, target: str, *, fields: Mapping[str, str], body: bytes | None, timeout: float) -> Sent:
        """Sends a request for `target`, a path with query below the server's address. `timeout` limits each wait, in seconds."""
        try:
            data = http11.request(method, self._way.prefix + target, {"Host": self._way.name, **fields}, body)
        except ValueError as error:
            raise NotSentError(str(error)) from error
        connection = self._usable(timeout)
        try:
            connection.socket.settimeout(timeout)
            connection.socket.sendall(data)
        except BaseException:
            connection.close()
            raise
        return Sent(self, connection)

    def keep(self, connection: _Connection) -> None:
        """Takes back a connection whose answer was read to its end."""
        if self._closed or len(self._idle) >= _MOST_KEPT:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Closes the idle connections, and the others when they become idle."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _usable(self, timeout: float) -> _Connection:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not connection.ended():
                    return connection
                connection.close()
        try:
            return _Connection(self._way, min(timeout, CONNECT_TIMEOUT))
        except OSError as error:
            raise NotSentError(str(error)) from error


class Sent:
    """A request whose answer is still to come."""

    def __init__(self, connections: Connections, connection: _Connection) -> None:
        self._connections = connections
        self._connection = connection

    def answer(self, timeout: float | None = None) -> Answer:
        """Waits for the head of the answer; each wait is now limited to `timeout` seconds, if that is given."""
        try:
            if timeout is not None:
                self._connection.socket.settimeout(timeout)
            return Answer(self._connections, self._connection, http11.read_head(self._connection.stream))
        except BaseException:
            self._connection.close()
            raise


class Answer:
    """The head of an answer, with its body still to be read by either `body` or `pieces`."""

    def __init__(self, connections: Connections, connection: _Connection, head: http11.Head) -> None:
        self.status = head.status
        self._connections = connections
        self._connection = connection
        self._head = head

    def field(self, name: str) -> str | None:
        """A header field, by its name in lower case."""
        return self._head.fields.get(name)

    def body(self) -> bytes:
        """All of it; the connection is free for the next request then."""
        try:
            data = http11.read_body(self._connection.stream, self._head)
        except BaseException:
            self.close()
            raise
        if self._head.keeps:
            self._connections.keep(self._connection)
        else:
            self.close()
        return data

    def pieces(self) -> Iterator[bytes]:
        """Piece by piece, as they come."""
        return http11.read_pieces(self._connection.stream, self._head)

    def close(self) -> None:
        """Ends the connection; only by the thread that reads."""
        self._connection.close()

    def interrupt(self) -> None:
        """Makes a read in another thread end. Raises OSError when it has ended already."""
        # Not the method of ssl.SSLSocket, which takes the TLS state away from the thread that reads.
        socket.socket.shutdown(self._connection.socket, socket.SHUT_RDWR)


class _Way(msgspec.Struct, frozen=True):
    """Where to connect to, and what to talk there. `tunnel` is the server, as host:port, behind an HTTP proxy that only carries bytes.

    `name` is what the server is called in a request, and `prefix` what its paths begin with.
    """

    host: str
    port: int
    name: str
    prefix: str
    tls: ssl.SSLContext | None
    tls_name: str
    tunnel: str = ""


class _Connection:
    """A socket with the server at its other end. OSError when that cannot be had within `timeout` seconds for each step."""

    def __init__(self, way: _Way, timeout: float) -> None:
        plain = socket.create_connection((way.host, way.port), timeout)
        try:
            for option in _OPTIONS:
                plain.setsockopt(*option)
            if way.tunnel:
                _open_tunnel(plain, way.tunnel)
            self.socket = way.tls.wrap_socket(plain, server_hostname=way.tls_name) if way.tls else plain
        except BaseException:
            plain.close()
            raise
        self.stream = self.socket.makefile("rb")
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def ended(self) -> bool:
        """Whether an idle connection cannot be used any more: nothing but its end comes unasked."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def _open_tunnel(plain: socket.socket, server: str) -> None:
    plain.sendall(http11.request("CONNECT", server, {"Host": server}, None))
    with plain.makefile("rb", buffering=0) as stream:  # unbuffered: what follows the head belongs to TLS
        head = http11.read_head(stream)
    if head.status >= 300:
        raise ConnectionError(f"the proxy answered HTTP {head.status} to CONNECT {server}")


def _way(connection: Connection) -> _Way:
    server = urlsplit(connection.server)
    host, port = _place(server, 443 if server.scheme == "https" else 80)
    name = server.netloc.rpartition("@")[2]
    tls = connection.ssl_context()
    if tls:
        tls.set_alpn_protocols(["http/1.1"])
    tls_name = connection.tls_server_name or host
    if not connection.proxy:
        return _Way(host, port, name, server.path, tls, tls_name)
    proxy = urlsplit(connection.proxy)
    if proxy.scheme != "http" or not proxy.hostname:
        raise SettingsError(f"proxy {connection.proxy!r} of API server {connection.server}: need http://host[:port]; no other kind can be used")
    proxy_host, proxy_port = _place(proxy, 80)
    if tls:
        return _Way(proxy_host, proxy_port, name, server.path, tls, tls_name, tunnel=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return _Way(proxy_host, proxy_port, name, connection.server, tls, tls_name)


def _place(address: SplitResult, usual_port: int) -> tuple[str, int]:
    return address.hostname or "", address.port or usual_port
