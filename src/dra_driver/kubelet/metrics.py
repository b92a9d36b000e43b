"""What a kubelet plugin measures. No metric has a label with as many values as there are pods or claims."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from dra_driver.daemon.measures import Measures

PREFIX = "dra_driver_"
OPERATIONS = {"NodePrepareResources": "prepare", "NodeUnprepareResources": "unprepare"}
OUTCOMES = ("ok", "claim_failed", "call_failed")


class PluginMetrics(Measures):
    """All metrics of one plugin. What other parts count they are handed as callables, what they know they are asked for when somebody reads."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        each_call = [(operation, outcome) for operation in OPERATIONS.values() for outcome in OUTCOMES]
        each_claim = [(operation, outcome) for operation in OPERATIONS.values() for outcome in ("ok", "failed")]
        self.requests = self.tally("requests", "calls of the kubelet that were answered", "operation", "outcome", known=each_call)
        self.latency = self.durations("request_duration_seconds", "time of a call of the kubelet", "operation")
        self.claims = self.tally("request_claims", "claims in those calls", "operation", "outcome", known=each_claim)
        self.running = Running()
        self.renewals = self.tally(
            "socket_renewals", "sockets whose file had vanished and that were made anew", "socket", known=[("service",), ("registrar",)]
        )
        self.gauge("requests_in_flight", "calls of the kubelet that run", self.running.by_operation, "operation")


class Running:
    """The calls that run now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(OPERATIONS.values(), 0)

    def __bool__(self) -> bool:
        return any(self._counts.values())

    def add(self, operation: str, number: int) -> None:
        """One more, or one less."""
        with self._lock:
            self._counts[operation] += number

    def by_operation(self) -> dict[tuple[str, ...], float]:
        """How many of each."""
        with self._lock:
            return {(operation,): count for operation, count in self._counts.items()}


class CallMeter(grpc.ServerInterceptor):
    """Measures every prepare and unprepare. A call for no claim is a probe, most likely our own, and counts for nothing."""

    def __init__(self, metrics: PluginMetrics) -> None:
        self._metrics = metrics

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None], handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Puts the meter before the method."""
        handler = continuation(handler_call_details)
        operation = OPERATIONS.get(handler_call_details.method.rpartition("/")[2])
        if handler is None or handler.unary_unary is None or operation is None:
            return handler
        method = handler.unary_unary

        def measured(request: Any, context: grpc.ServicerContext) -> Any:
            return self._call(operation, method, request, context) if request.claims else method(request, context)

        return grpc.unary_unary_rpc_method_handler(measured, handler.request_deserializer, handler.response_serializer)

    def _call(self, operation: str, method: Callable[[Any, grpc.ServicerContext], Any], request: Any, context: grpc.ServicerContext) -> Any:
        metrics = self._metrics
        began, outcome = time.monotonic(), "call_failed"
        metrics.running.add(operation, 1)
        try:
            response = method(request, context)
            failed = sum(bool(one.error) for one in response.claims.values())
            outcome = "claim_failed" if failed else "ok"
            metrics.claims.add(operation, "failed", by=failed)
            metrics.claims.add(operation, "ok", by=len(response.claims) - failed)
            return response
        finally:
            metrics.running.add(operation, -1)
            metrics.requests.add(operation, outcome)
            metrics.latency.add(time.monotonic() - began, operation)
