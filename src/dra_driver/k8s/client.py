"""A thin, typed client of the API server: `Kind[K]` in, `K` out.

The structs hold only the fields that this project uses. So `replace` is for objects whose whole content is ours; of others it would lose fields,
and `patch` is the way.
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Generic

import msgspec

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.errors import ApiError, ApiGoneError, ApiUnavailableError
from dra_driver.k8s.config import Connection
from dra_driver.k8s.decoding import Decoder
from dra_driver.k8s.objects.meta import K, Kind, ListMeta, Object, decode
from dra_driver.k8s.transport import Transport
from dra_driver.k8s.watch import Watch

DEADLINE = 30.0
PAGE = 500
WATCH_SILENCE_MARGIN = 15.0
_DRY: Mapping[bool, Mapping[str, str]] = {False: {}, True: {"dryRun": "All"}}
_LAST_PAGE = 1.0  # what a page gets even when the ones before it took all the time


class Listing(msgspec.Struct, Generic[K], frozen=True):
    """A consistent list; a watch from `resource_version` goes on from it. Objects that do not fit our struct are left out."""

    items: list[K] = []
    resource_version: str = ""


class _Page(Object):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class Client:
    """Thread-safe. `deadline` of each call is in seconds and covers all attempts; 0 is one attempt. All methods raise the ApiError classes.

    Which requests are repeated is told in `transport`.
    """

    def __init__(self, connection: Connection, user_agent: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._transport = Transport(connection, user_agent, self._clock)
        self._decoder = Decoder()
        self._watches: weakref.WeakSet[Watch[Any]] = weakref.WeakSet()

    @property
    def server(self) -> str:
        """The address, for messages."""
        return self._transport.server

    @property
    def unreadable(self) -> int:
        """How many objects did not fit our structs, so far."""
        return self._decoder.unreadable

    def close(self) -> None:
        """Stops all watches and waiting calls."""
        self._transport.close()
        for watch in list(self._watches):
            watch.stop()

    def get(self, kind: Kind[K], name: str, namespace: str = "", *, deadline: float = DEADLINE) -> K:
        """One object. ApiUnavailableError when the answer is about another one."""
        return self._read_one(kind, namespace, name, self._transport.request("GET", kind.path(namespace=namespace, name=name), deadline=deadline))

    def get_all(self, kind: Kind[K], names: Sequence[tuple[str, str]], *, deadline: float = DEADLINE) -> builtins.list[K | ApiError]:
        """Objects by namespace and name, each or why it cannot be had; they are asked for at the same time."""
        paths = [kind.path(namespace=namespace, name=name) for namespace, name in names]
        answers = self._transport.get_all(paths, deadline=deadline)
        return [self._read_or_error(kind, *name, found) for name, found in zip(names, answers, strict=True)]

    def list(
        self, kind: Kind[K], namespace: str = "", *, field_selector: str = "", label_selector: str = "", deadline: float = DEADLINE
    ) -> Listing[K]:
        """All objects that match, `namespace` "" meaning all namespaces."""
        end = self._clock.monotonic() + deadline
        query = {"limit": str(PAGE), "fieldSelector": field_selector, "labelSelector": label_selector}
        items: list[K] = []
        while True:
            try:
                page = self._page(kind, namespace, query, deadline and max(end - self._clock.monotonic(), _LAST_PAGE))
            except ApiGoneError:
                if "continue" not in query:
                    raise
                # The snapshot was compacted between two pages; a list in one piece cannot meet that again.
                del query["continue"], query["limit"]
                items.clear()
                continue
            items.extend(found for raw in page.items or () if (found := self._decoder.read(kind, raw).object) is not None)
            if not page.metadata.continue_token:
                return Listing(items, page.metadata.resource_version)
            query["continue"] = page.metadata.continue_token

    def watch(
        self,
        kind: Kind[K],
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        timeout: int = 300,
        silence: float | None = None,
    ) -> Watch[K]:
        """Changes after `resource_version`, with bookmarks, until the server ends it after `timeout` seconds.

        `silence` is how long the connection may say nothing; by default a little more than `timeout`. One attempt; `Watch.stop` ends it early.
        """
        query = _given(
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "fieldSelector": field_selector,
                "labelSelector": label_selector,
                "timeoutSeconds": str(timeout),
            }
        )
        path = kind.path(namespace=namespace)
        answer = self._transport.stream(path, query, silence=silence or timeout + WATCH_SILENCE_MARGIN)
        watch = Watch(answer, kind, self._decoder, f"watch of {path} at {self.server}")
        self._watches.add(watch)
        return watch

    def create(self, kind: Kind[K], obj: K, *, deadline: float = DEADLINE, dry_run: bool = False) -> K:
        """POST; returns what was stored, with `dry_run` what would be. An answer that was lost is not asked for again."""
        path = kind.path(namespace=obj.metadata.namespace)
        return self._read(kind, self._transport.request("POST", path, query=_DRY[dry_run], body=msgspec.json.encode(obj), deadline=deadline))

    def replace(self, kind: Kind[K], obj: K, *, subresource: str = "", deadline: float = DEADLINE, dry_run: bool = False) -> K:
        """PUT of the object or of its `subresource` ("status"); with a resourceVersion ApiConflictError tells that another writer was first.

        With `dry_run` nothing is stored; returns what would be.
        """
        metadata = obj.metadata
        path = kind.path(namespace=metadata.namespace, name=metadata.name, subresource=subresource)
        return self._read(kind, self._transport.request("PUT", path, query=_DRY[dry_run], body=msgspec.json.encode(obj), deadline=deadline))

    def patch(self, kind: Kind[K], name: str, namespace: str = "", *, changes: Mapping[str, Any], deadline: float = DEADLINE) -> K:
        """PATCH with a JSON merge patch (RFC 7396): only what `changes` names; None removes. Twice does no harm, so it is repeated like a GET."""
        path = kind.path(namespace=namespace, name=name)
        return self._read(kind, self._transport.request("PATCH", path, body=msgspec.json.encode(changes), deadline=deadline, safe=True))

    def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        """DELETE, of just this `uid` and `resource_version` where given (else ApiConflictError); `grace_period` in seconds is for pods."""
        path = kind.path(namespace=namespace, name=name)
        body = _delete_options(uid, resource_version, grace_period)
        self._transport.request("DELETE", path, body=body, deadline=deadline, safe=bool(uid))

    def delete_collection(
        self, kind: Kind[Any], namespace: str = "", *, field_selector: str = "", label_selector: str = "", deadline: float = DEADLINE
    ) -> None:
        """DELETE of all that match."""
        query = _given({"fieldSelector": field_selector, "labelSelector": label_selector})
        self._transport.request("DELETE", kind.path(namespace=namespace), query=query, deadline=deadline)

    def _page(self, kind: Kind[Any], namespace: str, query: dict[str, str], deadline: float) -> _Page:
        path = kind.path(namespace=namespace)
        data = self._transport.request("GET", path, query=_given(query), deadline=deadline)
        try:
            return decode(data, _Page)
        except msgspec.DecodeError as error:
            raise ApiError(f"GET {path} at {self.server}: not a list: {error}") from error

    def _read_or_error(self, kind: Kind[K], namespace: str, name: str, found: bytes | ApiError) -> K | ApiError:
        try:
            return found if isinstance(found, ApiError) else self._read_one(kind, namespace, name, found)
        except ApiError as error:
            return error

    def _read_one(self, kind: Kind[K], namespace: str, name: str, data: bytes) -> K:
        """What a server answers that is broken, or a proxy in its place, must not pass for the object: it would look replaced, or empty."""
        found = self._read(kind, data)
        if (found.metadata.namespace, found.metadata.name) != (namespace, name):
            told = data[:200].decode(errors="replace")
            raise ApiUnavailableError(f"GET {kind.path(namespace=namespace, name=name)} at {self.server}: the answer is not that object: {told!r}")
        return found

    def _read(self, kind: Kind[K], data: bytes) -> K:
        try:
            return decode(data, kind.type)
        except msgspec.DecodeError as error:
            raise ApiError(f"{kind.name} from {self.server} does not fit: {error}") from error


def _given(query: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}


def _delete_options(uid: str, resource_version: str, grace_period: int | None) -> bytes | None:
    preconditions = _given({"uid": uid, "resourceVersion": resource_version})
    options: dict[str, Any] = {"preconditions": preconditions} if preconditions else {}
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **options}) if options else None
