"""What a kubelet says to a plugin, written down so that two kubelets can be compared.

A recording is a list of JSON lines, one for each unary call in the order in which the calls began::

    {"method": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
     "request": {"claims": [{"namespace": "default", "uid": "6f1c…", "name": "gpu-x7k2p"}]},
     "timeout": 45}

`method` is the gRPC path, `request` the message as `as_data` writes it (proto field names, empty fields left out), `timeout` the deadline in
whole seconds, rounded. The stand-in writes `Call.as_line`; a recorder in a plugin makes the same line in a server interceptor from
`handler_call_details.method`, the request and `context.time_remaining()`. More keys are allowed.

`comparable` makes the recordings of two runs equal if the kubelets behaved alike: what differs between runs (UIDs, names of claims, namespaces,
directories) becomes a numbered placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_COMPARED = re.compile(r"/(pluginregistration\.Registration|k8s\.io\.kubelet\.pkg\.apis\.dra\.v\w+\.DRAPlugin)/")
_SOCKET_DIRECTORY = re.compile(r"/[^\s\"]*/(?=[^\s\"/]+\.sock)")


CLOSED = "CANCELLED: grpc: the client connection is closing"


@dataclass
class Call:
    """One call. `response` is None while it runs and where it failed; `error` is then `<gRPC status name>: <details>`."""

    method: str
    request: dict[str, Any]
    timeout: float | None
    response: dict[str, Any] | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """The method without its service."""
        return self.method.rsplit("/", 1)[1]

    def as_line(self) -> dict[str, Any]:
        """The call as a line of a recording."""
        return {"method": self.method, "request": self.request, "timeout": None if self.timeout is None else round(self.timeout)}


def as_data(message: Message) -> dict[str, Any]:
    """A message as JSON data with proto field names; fields that are empty are left out."""
    return MessageToDict(message, preserving_proto_field_name=True)


class CallRecorder(grpc.UnaryUnaryClientInterceptor):
    """A client interceptor that keeps every call in `calls`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: grpc.ClientCallDetails, request: Any) -> Any:
        """Waits for the answer, since the outcome belongs to the record."""
        method = client_call_details.method
        call = Call(method if isinstance(method, str) else method.decode(), as_data(request), client_call_details.timeout)
        self.calls.append(call)
        outcome = continuation(client_call_details, request)
        error = outcome.exception()
        if error is None:
            call.response = as_data(outcome.result())
        elif isinstance(error, ValueError):
            call.error = CLOSED
        else:
            call.error = f"{error.code().name}: {error.details()}"
        return outcome


def comparable(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Registration and claim calls of a recording, with placeholders such as `<uid 1>`, numbered in the order of appearance."""
    seen: dict[tuple[str, str], str] = {}

    def placeholder(kind: str, value: str) -> str:
        known = sum(1 for other, _ in seen if other == kind)
        return seen.setdefault((kind, value), f"<{kind} {known + 1}>")

    def simplified(request: Mapping[str, Any]) -> dict[str, Any]:
        simple = dict(request)
        if "claims" in simple:
            simple["claims"] = [{key: placeholder(key, value) for key, value in claim.items()} for claim in simple["claims"]]
        if "error" in simple:
            simple["error"] = _SOCKET_DIRECTORY.sub("<directory>/", simple["error"])
        return simple

    return [
        {"method": line["method"], "request": simplified(line["request"]), "timeout": line.get("timeout")}
        for line in lines
        if _COMPARED.match(line["method"])
    ]
