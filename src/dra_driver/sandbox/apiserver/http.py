"""The HTTP side: routes and verbs, one thread per connection."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from dra_driver.sandbox.apiserver.kinds import BY_PATH, Resource
from dra_driver.sandbox.apiserver.refusals import Refusal, bad_request
from dra_driver.sandbox.apiserver.selectors import Match, field_selector, label_selector
from dra_driver.sandbox.apiserver.streams import Stream

if TYPE_CHECKING:
    from dra_driver.sandbox.apiserver.server import ApiServer

log = logging.getLogger(__name__)

MERGE_PATCH = "application/merge-patch+json"
_SERVED = {version for version, _ in BY_PATH}


@dataclass(frozen=True)
class Request:
    """What was asked, for tests that count. `path` is with the query."""

    method: str
    path: str
    user_agent: str


class HttpServer(ThreadingHTTPServer):
    """Knows its connections, so that it can end them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._lock = threading.Condition()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def open_connections(self) -> int:
        """TCP connections that are being served."""
        with self._lock:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Notes the connection."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        """Forgets the connection."""
        super().close_request(request)
        with self._lock:
            self._open.discard(request)
            self._lock.notify_all()

    def hang_up(self) -> None:
        """Breaks all connections and waits for their threads."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._lock.wait_for(lambda: not self._open, timeout=5.0)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that hangs up is none."""
        log.debug("connection ended", extra={"client": client_address})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: HttpServer

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_PATCH(self) -> None:
        self._serve(self._patch)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class named it
        log.debug(format, *args)

    # Frame ----------------------------------------------------------------------------------------------------------

    def _serve(self, work: Callable[[], None]) -> None:
        api = self.server.api
        url = urlsplit(self.path)
        self._path, self._query = url.path, dict(parse_qsl(url.query))
        self._data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._lost = False
        fault = api.arrive(Request(self.command, self.path, self.headers.get("User-Agent", "")))
        try:
            if fault and fault.hang:
                fault.released.wait()
            if fault and fault.status:
                self._send(fault.status, Refusal(fault.status, fault.reason, fault.message).status(), retry_after=fault.retry_after)
                return
            self._lost = bool(fault and fault.lose_answer)
            self._authenticate()
            work()
        except _UnknownPathError:
            self._send(404, b"404 page not found\n", kind="text/plain")
        except Refusal as refusal:
            self._send(refusal.code, refusal.status())
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            log.exception("the API server double failed", extra={"request": f"{self.command} {self.path}"})
            self._send(500, Refusal(500, "InternalError", f"the API server double failed: {error!r}").status())

    def _authenticate(self) -> None:
        tokens = self.server.api.tokens
        if tokens is not None and self.headers.get("Authorization", "").removeprefix("Bearer ") not in tokens:
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _send(self, code: int, body: dict[str, Any] | bytes, *, retry_after: int | None = None, kind: str = "application/json") -> None:
        if self._lost:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(data)

    # Verbs ----------------------------------------------------------------------------------------------------------

    def _get(self) -> None:
        if self._path in ("/livez", "/readyz", "/healthz"):
            return self._send(200, b"ok", kind="text/plain")
        if self._path == "/version":
            return self._send(200, {"gitVersion": self.server.api.version})
        resource, namespace, name, _ = self._route()
        if name:
            return self._send(200, self.server.api.store.get(resource, namespace, name).raw)
        match = self._match(resource)
        if self._query.get("watch") in ("true", "1"):
            return self._watch(resource, namespace, match)
        found, version, token, remaining = self.server.api.store.page(
            resource, namespace, match, int(self._query.get("limit", 0)), self._query.get("continue", "")
        )
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if token:
            metadata |= {"continue": token, "remainingItemCount": remaining}
        head = json.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": metadata})
        return self._send(200, head[:-1].encode() + b',"items":[' + b",".join(entry.raw for entry in found) + b"]}")

    def _post(self) -> None:
        resource, namespace, _, _ = self._route()
        self._send(201, self.server.api.store.create(resource, namespace, self._body(), dry_run=self._dry_run()).raw)

    def _put(self) -> None:
        resource, namespace, name, subresource = self._route()
        store = self.server.api.store
        self._send(200, store.replace(resource, namespace, name, self._body(), status=subresource == "status", dry_run=self._dry_run()).raw)

    def _patch(self) -> None:
        if self.headers.get("Content-Type") != MERGE_PATCH:
            raise Refusal(415, "UnsupportedMediaType", f"the API server double knows only PATCH with Content-Type {MERGE_PATCH}")
        resource, namespace, name, subresource = self._route()
        self._send(200, self.server.api.store.patch(resource, namespace, name, self._body(), status=subresource == "status").raw)

    def _delete(self) -> None:
        resource, namespace, name, _ = self._route()
        options = self._body() if self._data else {}
        if name:
            self._send(200, self.server.api.store.delete(resource, namespace, name, options).raw)
        else:
            self.server.api.store.delete_collection(resource, namespace, self._match(resource), options)
            self._send(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def _watch(self, resource: Resource, namespace: str, match: Match) -> None:
        api = self.server.api
        version = self._query.get("resourceVersion", "0")
        if not version.isdecimal():
            raise Refusal(500, "", f'resourceVersion: Invalid value: "{version}": need a number')
        stream = Stream(api.store, resource, namespace, match, self.connection)
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        api.track(stream, begin=True)
        try:
            self.wfile.flush()
            for line in stream.lines(
                None if version == "0" else int(version),
                float(self._query.get("timeoutSeconds", 1800)),
                bookmarks=self._query.get("allowWatchBookmarks") in ("true", "1"),
                every=api.bookmark_every,
            ):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        finally:
            api.track(stream, begin=False)
        if stream.cut:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(b"0\r\n\r\n")

    # Parts of a request ---------------------------------------------------------------------------------------------

    def _route(self) -> tuple[Resource, str, str, str]:
        parts = self._path.strip("/").split("/")
        version, rest = ("v1", parts[2:]) if parts[:2] == ["api", "v1"] else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        resource = BY_PATH.get((version, rest[0] if rest else ""))
        if version not in _SERVED:
            raise _UnknownPathError
        if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        name, subresource = [*rest[1:], "", ""][:2]
        if subresource and not (subresource == "status" and resource.has_status):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        return resource, namespace, name, subresource

    def _match(self, resource: Resource) -> Match:
        fields = field_selector(self._query.get("fieldSelector", ""), resource.selectable, f"{resource.group_version}, Kind={resource.kind}")
        labels = label_selector(self._query.get("labelSelector", ""))
        return lambda obj: fields(obj) and labels(obj)

    def _dry_run(self) -> bool:
        return self._query.get("dryRun") == "All"

    def _body(self) -> Any:
        try:
            return json.loads(self._data)
        except ValueError as error:
            raise bad_request(f"the body is not JSON: {error}") from error


class _UnknownPathError(Exception):
    """A group or version that is not served."""
