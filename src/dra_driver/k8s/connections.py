"""HTTP/1.1 connections to one server: opened when they are needed, kept for the next request.

On the standard library's http.client. A request is sent and its answer read in two steps, so that one thread can have many on their way.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from dra_driver.errors import SettingsError
from dra_driver.k8s.config import Connection

FAILURES = (OSError, http.client.HTTPException)
"""What all methods here raise when a connection does not do; TimeoutError among them when the server is silent."""

CONNECT_TIMEOUT = 5.0
_MOST_KEPT = 64
_CHUNK = 1 << 16

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class NotConnectedError(OSError):
    """There was no connection, so the request was certainly not sent."""


class Connections:
    """The connections to the server of `connection`. Thread-safe; SettingsError when they cannot be as it says."""

    def __init__(self, connection: Connection) -> None:
        self._way = _way(connection)
        self._idle: list[_Connection] = []  # the one used last is taken first; append and pop are atomic
        self._closed = False

    def send(self, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Sent:
        """Sends a request for `target`, a path with query below the server's address. `timeout` limits each wait, in seconds.

        Raises NotConnectedError or another of FAILURES.
        """
        connection = self._usable(timeout)
        try:
            connection.stream.settimeout(timeout)
            connection.request(method, self._way.prefix + target, body, headers)
        except BaseException:
            connection.close()
            raise
        return Sent(self, connection)

    def keep(self, connection: _Connection) -> None:
        """Takes back a connection whose answer was read to its end."""
        if self._closed or connection.sock is None or len(self._idle) >= _MOST_KEPT:
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
        connection = _Connection(self._way, min(timeout, CONNECT_TIMEOUT))
        try:
            connection.connect()
        except FAILURES as error:
            connection.close()
            raise NotConnectedError(str(error)) from error
        return connection


class Sent:
    """A request whose answer is still to come."""

    def __init__(self, connections: Connections, connection: _Connection) -> None:
        self._connections = connections
        self._connection = connection

    def answer(self, timeout: float | None = None) -> Answer:
        """Waits for the head of the answer; each wait is now limited to `timeout` seconds, if that is given. Raises FAILURES."""
        try:
            if timeout is not None:
                self._connection.stream.settimeout(timeout)
            return Answer(self._connections, self._connection, self._connection.getresponse())
        except BaseException:
            self._connection.close()
            raise


class Answer:
    """The head of an answer, with its body still to be read by either `body` or `chunks`; both raise FAILURES."""

    def __init__(self, connections: Connections, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self._connections = connections
        self._connection = connection
        self._response = response

    def header(self, name: str) -> str | None:
        """The value of a header."""
        return self._response.headers.get(name)

    def body(self) -> bytes:
        """All of it; the connection is free for the next request then."""
        try:
            data = self._response.read()
        except BaseException:
            self.close()
            raise
        self._connections.keep(self._connection)
        return data

    def chunks(self) -> Iterator[bytes]:
        """Piece by piece, as they come."""
        while chunk := self._response.read1(_CHUNK):
            yield chunk

    def close(self) -> None:
        """Ends the connection; only by the thread that reads."""
        self._response.close()
        self._connection.close()

    def interrupt(self) -> None:
        """Makes a read in another thread end. Raises OSError when it has ended already."""
        # Not the method of ssl.SSLSocket, which takes the TLS state away from the thread that reads.
        socket.socket.shutdown(self._connection.stream, socket.SHUT_RDWR)


class _Way(msgspec.Struct, frozen=True):
    """Where to connect to, and what to talk there. `tunnel` is the server behind an HTTP proxy that only carries bytes."""

    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None
    tls_name: str
    tunnel: tuple[str, int] | None = None


class _Connection(http.client.HTTPConnection):
    stream: socket.socket  # stays when `sock` is taken away because the answer ends with the connection

    def __init__(self, way: _Way, timeout: float) -> None:
        super().__init__(way.host, way.port, timeout=timeout)
        self._way = way
        if way.tunnel:
            self.set_tunnel(*way.tunnel)

    def connect(self) -> None:
        super().connect()
        for option in _KEEPALIVE:
            self.sock.setsockopt(*option)
        if self._way.tls:
            self.sock = self._way.tls.wrap_socket(self.sock, server_hostname=self._way.tls_name)
        self.stream = self.sock
        self._poll = select.poll()
        self._poll.register(self.sock, select.POLLIN)

    def getresponse(self) -> http.client.HTTPResponse:
        response = super().getresponse()
        if response.status < 200:  # only 100 is passed over there; the answer is still to come, and the next request would get it
            raise http.client.HTTPException(f"an interim answer with HTTP {response.status}, which nobody asked for")
        return response

    def ended(self) -> bool:
        """Whether an idle connection cannot be used any more: nothing but its end comes unasked."""
        return bool(self._poll.poll(0))


def _way(connection: Connection) -> _Way:
    server = urlsplit(connection.server)
    host, port = _place(server, 443 if server.scheme == "https" else 80)
    tls = connection.ssl_context()
    if tls:
        tls.set_alpn_protocols(["http/1.1"])
    tls_name = connection.tls_server_name or host
    if not connection.proxy:
        return _Way(host, port, server.path, tls, tls_name)
    proxy = urlsplit(connection.proxy)
    if proxy.scheme != "http" or not proxy.hostname:
        raise SettingsError(f"proxy {connection.proxy!r} of API server {connection.server}: need http://host[:port]; no other kind can be used")
    proxy_host, proxy_port = _place(proxy, 80)
    if tls:
        return _Way(proxy_host, proxy_port, server.path, tls, tls_name, tunnel=(host, port))
    return _Way(proxy_host, proxy_port, connection.server, tls, tls_name)


def _place(address: SplitResult, usual_port: int) -> tuple[str, int]:
    return address.hostname or "", address.port or usual_port
