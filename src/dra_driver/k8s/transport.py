"""Requests to the API server: one place for credentials, error classes and retries.

What may be sent again is decided here and nowhere else:

- anything that was never sent (connection refused, name not resolved, connect timeout), and anything that the server turned away unprocessed
  (429, or 5xx with Retry-After);
- after a lost answer or a plain 5xx only requests whose repetition does no harm: GET, and writes that the caller marks `safe` because a
  precondition guards them;
- once, a request that met 401, with renewed credentials.

All attempts together end by the deadline of the call.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec

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
from dra_driver.k8s.connections import FAILURES, Answer, Connections, NotConnectedError, Sent
from dra_driver.k8s.objects.meta import Status, decode

log = logging.getLogger(__name__)

READ_TIMEOUT = 30.0
_LEAST_TIMEOUT = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.4, 5.0

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
        self._connections = Connections(connection)

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, deadline: float, safe: bool = False
    ) -> bytes:
        """The body of a successful answer.

        `deadline` is in seconds from now, for all attempts; 0 means one attempt with the usual timeouts. Raises the ApiError classes.
        """
        end = self._clock.monotonic() + deadline
        target = _target(path, query)
        pause = _FIRST_PAUSE
        repeated = False
        while True:
            left = max(end - self._clock.monotonic(), _LEAST_TIMEOUT) if deadline else READ_TIMEOUT  # a pause may end late
            try:
                return self._attempt(method, target, body, min(READ_TIMEOUT, left))
            except ApiNotFoundError:
                if method == "DELETE" and repeated:
                    return b""  # an earlier attempt did it and its answer was lost
                raise
            except ApiUnavailableError as error:
                wait = max(random.uniform(0, pause), error.retry_after or 0.0)  # noqa: S311  (so that clients do not come all at once)
                if not _may_repeat(error, safe=safe or method == "GET") or self._clock.monotonic() + wait >= end:
                    raise
            self._pause(wait, f"{method} {path}")
            pause = min(pause * 2, _LONGEST_PAUSE)
            repeated = True

    def get_all(self, paths: Sequence[str], *, deadline: float) -> list[bytes | ApiError]:
        """The body of a GET of each path, or why there is none. All are on their way at the same time, without a thread for each.

        `deadline` is in seconds from now, for all of them and all attempts.
        """
        end = self._clock.monotonic() + deadline
        sent = [self._try_send(path, end) for path in paths]
        return [self._finish(path, one, end) for path, one in zip(paths, sent, strict=True)]

    def stream(self, path: str, query: Mapping[str, str], *, silence: float) -> Answer:
        """One attempt of a GET whose body is still to be read; ends with an error when nothing comes for `silence` seconds. The caller closes it."""
        return self._exchange("GET", _target(path, query), None, silence)

    def close(self) -> None:
        """Ends waiting calls and drops idle connections."""
        self._closed.set()
        self._connections.close()

    def _pause(self, seconds: float, request: str) -> None:
        log.debug("request is repeated", extra={"request": request, "wait": seconds})
        if self._clock.wait(self._closed, seconds):
            raise ApiUnavailableError(f"{request}: the client was closed")

    def _attempt(self, method: str, target: str, body: bytes | None, timeout: float) -> bytes:
        answer = self._exchange(method, target, body, timeout)
        try:
            return answer.body()
        except FAILURES as error:
            raise self._failure(method, target, error) from error

    def _exchange(self, method: str, target: str, body: bytes | None, timeout: float) -> Answer:
        """The answer to a request that went well, sent once more with renewed credentials if it met 401."""
        answer = self._answer(method, target, body, timeout)
        if answer.status == 401 and self._credentials:
            answer.close()
            self._credentials.renew()
            answer = self._answer(method, target, body, timeout)
        if answer.status >= 300:
            raise self._refusal(method, target, answer)
        return answer

    def _answer(self, method: str, target: str, body: bytes | None, timeout: float) -> Answer:
        try:
            return self._send(method, target, body, timeout).answer()
        except FAILURES as error:
            raise self._failure(method, target, error) from error

    def _send(self, method: str, target: str, body: bytes | None, timeout: float) -> Sent:
        headers = dict(self._headers)
        if self._credentials and (authorization := self._credentials.header()):
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._connections.send(method, target, headers=headers, body=body, timeout=timeout)

    def _failure(self, method: str, target: str, error: Exception) -> ApiUnavailableError:
        return ApiUnavailableError(f"{method} {_path(target)} at {self.server}: {error}")

    def _refusal(self, method: str, target: str, answer: Answer) -> ApiError:
        try:
            data = answer.body()
        except FAILURES:
            data = b""
        request = f"{method} {_path(target)} at {self.server}"
        return api_error(answer.status, _read_status(data), request=request, retry_after=_seconds(answer.header("Retry-After")))

    def _try_send(self, path: str, end: float) -> Sent | None:
        left = end - self._clock.monotonic()  # a server that cannot be reached takes some of it with each request
        with contextlib.suppress(*FAILURES):
            return self._send("GET", path, None, min(READ_TIMEOUT, max(left, _LEAST_TIMEOUT)))
        return None

    def _finish(self, path: str, sent: Sent | None, end: float) -> bytes | ApiError:
        left = max(end - self._clock.monotonic(), _LEAST_TIMEOUT)
        if sent is not None:
            with contextlib.suppress(*FAILURES):
                answer = sent.answer(min(READ_TIMEOUT, left))
                if answer.status < 300:
                    return answer.body()
                if 400 <= answer.status < 500 and answer.status not in {401, 429}:
                    return self._refusal("GET", path, answer)
                answer.close()
        # What may go better another time is left to a request of its own.
        try:
            return self.request("GET", path, deadline=max(end - self._clock.monotonic(), _LEAST_TIMEOUT))
        except ApiError as error:
            return error


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _path(target: str) -> str:
    return target.partition("?")[0]


def _may_repeat(error: ApiUnavailableError, *, safe: bool) -> bool:
    unsent = isinstance(error.__cause__, NotConnectedError)
    unprocessed = error.status == 429 or error.retry_after is not None
    return safe or unsent or unprocessed


def _seconds(value: str | None) -> float | None:
    return float(value) if value and value.isdecimal() else None


def _read_status(data: bytes) -> Status:
    """Proxies and the server's own mux answer with plain text."""
    try:
        return decode(data, Status)
    except msgspec.DecodeError:
        return Status(message=data[:200].decode(errors="replace").strip())
