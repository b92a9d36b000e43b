"""One watch: a stream of JSON lines that the server ends after `timeoutSeconds`.

A `Watch` is read by one thread; any other may `stop` it. It closes its connection on every path. Silence for longer than the read timeout ends it
with an error, because a half-open TCP connection looks exactly like a quiet cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Literal

import msgspec

from dra_driver.errors import ApiUnavailableError
from dra_driver.k8s.connections import FAILURES, Answer
from dra_driver.k8s.decoding import Decoder, read_metadata
from dra_driver.k8s.objects.meta import K, Kind, Object, ObjectMeta, Status, decode
from dra_driver.k8s.transport import api_error


class WatchEvent(msgspec.Struct, Generic[K], frozen=True):
    """`object` is None for a BOOKMARK, which only carries the newest resourceVersion, and for an object that does not fit our struct."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    metadata: ObjectMeta
    object: K | None


class _Frame(Object):
    type: str
    object: msgspec.Raw


class Watch(Generic[K]):
    """Iterate for events; the iteration ends when the server's time is over or after `stop`.

    Raises ApiGoneError when the resourceVersion is too old, ApiUnavailableError when the connection breaks or stays silent, else ApiError.
    """

    def __init__(self, answer: Answer, kind: Kind[K], decoder: Decoder, request: str) -> None:
        self._answer = answer
        self._kind = kind
        self._decoder = decoder
        self._request = request
        self._stopped = threading.Event()

    def __enter__(self) -> Watch[K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._answer.close()

    def __iter__(self) -> Iterator[WatchEvent[K]]:
        try:
            for line in self._lines():
                yield self._event(line)
        finally:
            self._answer.close()

    def stop(self) -> None:
        """Ends the iteration in whatever thread it runs."""
        self._stopped.set()
        try:
            self._answer.interrupt()
        except OSError:
            self._answer.close()  # already over

    def _lines(self) -> Iterator[bytes]:
        pending = b""
        try:
            for chunk in self._answer.chunks():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    if self._stopped.is_set():
                        return
                    if line:
                        yield line
        except TimeoutError as error:
            raise ApiUnavailableError(f"{self._request}: the connection was silent for too long") from error
        except (*FAILURES, ValueError, AttributeError) as error:
            # ValueError and AttributeError: another thread closed the response below us.
            if not self._stopped.is_set():
                raise ApiUnavailableError(f"{self._request}: {error}") from error

    def _event(self, line: bytes) -> WatchEvent[K]:
        try:
            frame = msgspec.json.decode(line, type=_Frame)
        except msgspec.DecodeError as error:
            raise ApiUnavailableError(f"{self._request}: not a watch event: {line[:200].decode(errors='replace')!r}") from error
        match frame.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                found = self._decoder.read(self._kind, frame.object)
                return WatchEvent(frame.type, found.metadata, found.object)
            case "BOOKMARK":
                return WatchEvent("BOOKMARK", read_metadata(bytes(frame.object)), None)
            case _:
                status = decode(bytes(frame.object), Status)
                raise api_error(status.code, status, request=self._request)
