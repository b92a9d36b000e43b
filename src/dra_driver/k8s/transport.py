"""HTTP to the API server: one connection pool, one place for credentials, error classes and retries.

What may be sent again is decided here and nowhere else:

- anything that was never sent (connection refused, name not resolved, connect timeout), and anything that the server turned away unprocessed
  (429, or 5xx with Retry-After);
- after a lost answer or a plain 5xx only requests whose repetition does no harm: GET, and writes that the caller marks `safe` because a
  precondition guards them;
- once, a request that met 401, with renewed credentials.

All attempts together end by the deadline of the call.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
import tenacity
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from dra_driver.daemon.clock import Clock
from dra_driver.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiError,
    ApiGoneError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiUnavailableError,
)
from dra_driver.k8s.config import Connection
from dra_driver.k8s.objects.meta import Status, decode

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
_LEAST_TIMEOUT = 0.1
_POOL_SIZE = 64
_BACKOFF = tenacity.wait_random_exponential(multiplier=0.4, max=5.0)

_KEEPALIVE: list[tuple[int, int, int | bytes]] = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

_CLASSES: dict[int, type[ApiError]] = {
    401: ApiDeniedError,
    403: ApiDeniedError,
    404: ApiNotFoundError,
    409: ApiConflictError,
    410: ApiGoneError,
    422: ApiInvalidError,
}


def api_error(code: int, status: Status, *, request: str, retry_after: float | None = None) -> ApiError:
    """The exception for an HTTP status or an ERROR event. `request` goes into the text where the server's own message does not say enough."""
    if code == 429 or code >= 500:
        text = f"{request}: HTTP {code} {status.reason}: {status.message}"
        return ApiUnavailableError(text, status=code, reason=status.reason, retry_after=retry_after)
    kind = ApiGoneError if status.reason == "Expired" else _CLASSES.get(code, ApiError)
    return kind(status.message or f"{request}: HTTP {code}", status=code, reason=status.reason)


class Transport:
    """Thread-safe. `clock` times deadlines and the waits between attempts."""

    def __init__(self, connection: Connection, user_agent: str, clock: Clock) -> None:
        self.server = connection.server
        self._credentials = connection.credentials
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._clock = clock
        self._closed = threading.Event()
        options: dict[str, Any] = {"maxsize": _POOL_SIZE, "block": False, "socket_options": _KEEPALIVE}
        if context := connection.ssl_context():
            options["ssl_context"] = context
            if connection.tls_server_name:
                options |= {"server_hostname": connection.tls_server_name, "assert_hostname": connection.tls_server_name}
        self._pool = urllib3.ProxyManager(connection.proxy, **options) if connection.proxy else urllib3.PoolManager(**options)

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, deadline: float, safe: bool = False
    ) -> bytes:
        """The body of a successful answer.

        `deadline` is in seconds from now, for all attempts; 0 means one attempt with the usual timeouts. Raises the ApiError classes.
        """
        end = self._clock.monotonic() + deadline
        safe = safe or method == "GET"
        attempts = tenacity.Retrying(
            sleep=lambda seconds: self._pause(seconds, f"{method} {path}"),
            stop=lambda state: self._clock.monotonic() + state.upcoming_sleep >= end,
            wait=lambda state: max(_BACKOFF(state), _retry_after(state)),
            retry=tenacity.retry_if_exception(lambda error: _may_repeat(error, safe=safe)),
            reraise=True,
        )

        def once() -> bytes:
            left = max(end - self._clock.monotonic(), _LEAST_TIMEOUT) if deadline else READ_TIMEOUT  # a pause may end late
            timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, left), read=min(READ_TIMEOUT, left))
            return self._send(method, path, query, body, timeout, stream=False).data

        try:
            return attempts(once)
        except ApiNotFoundError:
            if method == "DELETE" and attempts.statistics["attempt_number"] > 1:
                return b""  # an earlier attempt did it and its answer was lost
            raise

    def stream(self, path: str, query: Mapping[str, str], *, silence: float) -> urllib3.BaseHTTPResponse:
        """One attempt of a GET whose body is still to be read; ends with an error when nothing comes for `silence` seconds. The caller closes it."""
        return self._send("GET", path, query, None, urllib3.Timeout(connect=CONNECT_TIMEOUT, read=silence), stream=True)

    def close(self) -> None:
        """Ends waiting calls and drops idle connections."""
        self._closed.set()
        self._pool.clear()

    def _pause(self, seconds: float, request: str) -> None:
        log.debug("request is repeated", extra={"request": request, "wait": seconds})
        if self._clock.wait(self._closed, seconds):
            raise ApiUnavailableError(f"{request}: the client was closed")

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, timeout: urllib3.Timeout, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        response = self._exchange(method, path, query, body, timeout, stream=stream)
        if response.status == 401 and self._credentials:
            response.close()
            self._credentials.renew()
            response = self._exchange(method, path, query, body, timeout, stream=stream)
        if response.status < 300:
            return response
        try:
            data = response.data
        except (HTTPError, OSError):
            data = b""
        finally:
            if stream:
                response.close()
        raise api_error(
            response.status,
            _read_status(data),
            request=f"{method} {path} at {self.server}",
            retry_after=_seconds(response.headers.get("Retry-After")),
        )

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, timeout: urllib3.Timeout, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(self._headers)
        if self._credentials and (authorization := self._credentials.header()):
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self._pool.request(
                method, url, body=body, headers=headers, timeout=timeout, retries=False, redirect=False, preload_content=not stream
            )
        except (HTTPError, OSError) as error:
            raise ApiUnavailableError(f"{method} {path} at {self.server}: {error}") from error


def _may_repeat(error: BaseException, *, safe: bool) -> bool:
    if not isinstance(error, ApiUnavailableError):
        return False
    unsent = isinstance(error.__cause__, NewConnectionError | ConnectTimeoutError)
    unprocessed = error.status == 429 or error.retry_after is not None
    return safe or unsent or unprocessed


def _retry_after(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return (error.retry_after if isinstance(error, ApiUnavailableError) else None) or 0.0


def _seconds(value: str | None) -> float | None:
    return float(value) if value and value.isdecimal() else None


def _read_status(data: bytes) -> Status:
    """Proxies and the server's own mux answer with plain text."""
    try:
        return decode(data, Status)
    except msgspec.DecodeError:
        return Status(message=data[:200].decode(errors="replace").strip())
