"""Events (events.k8s.io/v1): what a controller has to say about an object, for `kubectl describe` and `kubectl events`.

The API server forgets an Event an hour after the last write. So what is still true is said again before that, and this makes the Event a series:
one object with a count, whose text never changes. An Event's name follows from its content, so a restarted program goes on with the series.
"""

from __future__ import annotations

import hashlib
import socket
import time
from typing import Literal

import msgspec

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.errors import ApiConflictError, ApiNotFoundError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import Kind, Object, ObjectMeta, TopLevel, always

API_VERSION = "events.k8s.io/v1"
NOTE_BYTES = 1024
"""Limit of the API: `note`, in UTF-8."""

_NAMESPACE_OF_CLUSTER_WIDE_OBJECTS = "default"
_INSTANCE_BYTES = 128
_NAME_PREFIX = 230
_REMEMBERED = 10_000
_DEADLINE = 10.0


class ObjectReference(Object):
    """core/v1 ObjectReference; `namespace` is "" for cluster-wide kinds."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    namespace: str = ""


class EventSeries(Object):
    """How often the same was seen, and when last (RFC 3339 with microseconds)."""

    count: int
    last_observed_time: str


class Event(TopLevel, kw_only=True):
    """One thing that happened, or a series of it. `action` is what the controller did, `reason` why, both in CamelCase."""

    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = msgspec.field(default_factory=lambda: ObjectReference("", "", ""))
    note: str = ""
    type: str = ""
    api_version: str = always(API_VERSION)
    kind: str = always("Event")


EVENTS = Kind(Event, API_VERSION, "Event", "events")


class EventRecorder:
    """Writes Events as `controller`, from this host as `instance`. For one thread."""

    def __init__(self, client: Client, controller: str, *, instance: str = "", clock: Clock | None = None) -> None:
        self._client = client
        self._controller = controller
        self._instance = (instance or socket.gethostname())[:_INSTANCE_BYTES]
        self._clock = clock or SystemClock()
        self._counts: dict[str, int] = {}

    def record(self, regarding: ObjectReference, *, type: Literal["Normal", "Warning"], reason: str, action: str, note: str) -> None:  # noqa: A002
        """Creates the Event, or, where the same one exists, counts one more in its series. A long note is cut. Raises ApiError."""
        note = fit(note)
        namespace = regarding.namespace or _NAMESPACE_OF_CLUSTER_WIDE_OBJECTS
        name = _name(regarding.name, [self._controller, regarding.kind, regarding.uid or regarding.name, type, reason, action, note])
        now = _micro_time(self._clock.now())
        if name in self._counts and self._count_one_more(name, namespace, now):
            return
        event = Event(
            metadata=ObjectMeta(name=name, namespace=namespace),
            event_time=now,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=action,
            reason=reason,
            regarding=regarding,
            note=note,
            type=type,
        )
        try:
            self._client.create(EVENTS, event, deadline=_DEADLINE)
        except ApiConflictError:
            # From before our restart, or the answer to our own create was lost. An empty patch is a read for which the verb patch is enough.
            found = self._client.patch(EVENTS, name, namespace, changes={}, deadline=_DEADLINE)
            self._remember(name, found.series.count if found.series else 1)
            self._count_one_more(name, namespace, now)
        else:
            self._remember(name, 1)

    def _count_one_more(self, name: str, namespace: str, now: str) -> bool:
        """False when the Event has expired."""
        series = EventSeries(self._counts[name] + 1, now)
        try:
            self._client.patch(EVENTS, name, namespace, changes={"series": msgspec.to_builtins(series)}, deadline=_DEADLINE)
        except ApiNotFoundError:
            del self._counts[name]
            return False
        self._remember(name, series.count)
        return True

    def _remember(self, name: str, count: int) -> None:
        if len(self._counts) >= _REMEMBERED:
            self._counts.clear()
        self._counts[name] = count


def fit(note: str) -> str:
    """The note within the API's limit, its end cut if need be."""
    data = note.encode()
    return note if len(data) <= NOTE_BYTES else data[: NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _name(regarding: str, content: list[str]) -> str:
    digest = hashlib.sha256("\0".join(content).encode()).hexdigest()[:16]
    return f"{regarding[:_NAME_PREFIX].rstrip('-.')}.{digest}"


def _micro_time(moment: float) -> str:
    whole = int(moment)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((moment - whole) * 1_000_000):06d}Z"
