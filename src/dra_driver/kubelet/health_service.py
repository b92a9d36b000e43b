"""DRAResourceHealth, the service by which the kubelet learns of the health of devices, in both API versions.

A kubelet keeps one stream open for as long as the driver is registered. Each message is the full list: on connect, after a change, and again before
the kubelet takes the devices for unknown. A stream holds a thread for its whole life, so streams have threads of their own, and not many: whatever is
opened and abandoned here, prepare and unprepare find theirs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from dra_driver.kubelet._proto import dra_health_v1_pb2, dra_health_v1_pb2_grpc, dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc
from dra_driver.kubelet.health import HealthBoard

log = logging.getLogger(__name__)

V1 = "v1.DRAResourceHealth"
V1ALPHA1 = "v1alpha1.DRAResourceHealth"
VERSIONS = (V1, V1ALPHA1)

MOST_STREAMS = 8
"""A kubelet needs one; for a while there may be more, since one of a kubelet that is gone is noticed late."""

RESEND = 10.0
"""Seconds between two messages when nothing changes. Besides, the kubelet forgets all health of a driver when the stream of any instance ends."""

LONGEST_MESSAGE = 1024  # bytes of a device's message (ResourceHealthMessageMaxLength)


class HealthStreams:
    """All streams of one board, of both versions."""

    def __init__(self, board: HealthBoard) -> None:
        self._board = board
        self._threads = ThreadPoolExecutor(MOST_STREAMS + 1, thread_name_prefix="health-stream")
        self._changed = threading.Condition()
        self._streams: list[_Stream] = []
        self._closed = False
        board.listen(self._ring)

    @property
    def count(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    def add_to(self, server: grpc.Server) -> None:
        """Serves all VERSIONS on `server`."""
        dra_health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(self._service(dra_health_v1_pb2), server)
        dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(self._service(dra_health_v1alpha1_pb2), server)

    def close(self, grace: float = 1.0) -> None:
        """Ends all streams, and new ones at once. Those that cannot end within `grace` seconds, since nobody reads them, are cancelled."""
        with self._changed:
            self._closed = True
            for stream in self._streams:
                stream.end()
            self._changed.wait_for(lambda: not self._streams, grace)
            for stream in self._streams:
                stream.context.cancel()

    def _service(self, messages: Any) -> Any:
        """The servicer of one version. gRPC takes the threads of a method from this attribute of its implementation, if there is one."""

        def watch(request: object, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: ARG001
            return self._watch(messages, context)

        watch.experimental_thread_pool = self._threads  # type: ignore[attr-defined]
        return _Servicer(watch)

    def _watch(self, messages: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        with self._opened(context) as stream:
            while stream.goes_on():
                if self._board.leads:
                    yield _full_list(messages, self._board)
                stream.bell.wait(RESEND)

    @contextlib.contextmanager
    def _opened(self, context: grpc.ServicerContext) -> Iterator[_Stream]:
        stream = _Stream(context)
        with self._changed:
            if self._closed:
                stream.end()
            self._streams.append(stream)
            surplus = self._streams.pop(0) if len(self._streams) > MOST_STREAMS else None
            self._changed.notify_all()
        if surplus is not None:
            log.warning("too many health streams, the oldest ends", extra={"most": MOST_STREAMS})
            surplus.end()
            surplus.context.cancel()
        try:
            yield stream
        finally:
            with self._changed, contextlib.suppress(ValueError):
                self._streams.remove(stream)
                self._changed.notify_all()

    def _ring(self) -> None:
        with self._changed:
            for stream in self._streams:
                stream.bell.set()


class _Servicer:
    def __init__(self, watch: Any) -> None:
        self.NodeWatchResources = watch


class _Stream:
    """One open stream; `bell` wakes its thread."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.context = context
        self.bell = threading.Event()
        self._ended = not context.add_callback(self.end)

    def end(self) -> None:
        """Its thread is to return."""
        self._ended = True
        self.bell.set()

    def goes_on(self) -> bool:
        """Whether there is to be another message; what rings from now on is for the next one."""
        self.bell.clear()
        return not self._ended


def _full_list(messages: Any, board: HealthBoard) -> Any:
    response = messages.NodeWatchResourcesResponse()
    for one in board.devices():
        response.devices.add(
            device=messages.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
            health=messages.HealthStatus.Value(one.health.upper()),
            last_updated_time=int(one.updated),
            health_check_timeout_seconds=int(board.timeout),
            message=_cut(one.message),
        )
    return response


def _cut(message: str) -> str:
    """At most LONGEST_MESSAGE bytes, without half a character at the end."""
    if len(message.encode()) <= LONGEST_MESSAGE:
        return message
    return message.encode()[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
