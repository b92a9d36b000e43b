"""What a kubelet plugin measures. No metric has a label with as many values as there are pods or claims."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from dra_driver.daemon.measures import Measures
from dra_driver.kubelet.observer import Observer

PREFIX = "dra_driver_"
OPERATIONS = {"NodePrepareResources": "prepare", "NodeUnprepareResources": "unprepare"}


class PluginMetrics(Measures, Observer):
    """All metrics of one plugin. Parts report to it as to an `Observer`, or are asked for what they know when somebody reads."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        operations = tuple(OPERATIONS.values())
        self.running = Running(operations)
        self.requests = self.tally(
            "requests",
            "calls of the kubelet; in claim_failed ones at least one claim failed, failed ones had no answer",
            "operation",
            "outcome",
            known=_each(operations, ("ok", "claim_failed", "failed")),
        )
        self.latency = self.durations("request_duration_seconds", "time of a call of the kubelet", "operation", known=_each(operations))
        self.gauge("requests_in_flight", "calls of the kubelet that run", self.running.by_operation, "operation")
        self._claims = self.tally(
            "claims",
            "claims in those calls; retry is a failure that may pass, joined a claim that another call was at work on",
            "operation",
            "outcome",
            known=_each(operations, ("done", "retry", "refused", "joined")),
        )
        self._guard = self.durations(
            "guard_wait_seconds",
            "time for which a prepare waited for a device that another claim held",
            "outcome",
            known=_each(("freed", "timeout", "given_up", "crowded")),
        )
        self._sweep = self.tally(
            "sweep_claims",
            "prepared claims that the sweep looked at; released ones were lost, busy ones have a running pod, or a process on a device",
            "outcome",
            known=_each(("kept", "absent", "busy", "released", "unknown", "failed")),
        )
        self._journal = self.tally(
            "journal_events",
            "the journal was opened, set aside as damaged, a claim rebuilt or rolled back, a device of a rebuilt claim is not known",
            "outcome",
            known=_each(("opened", "quarantined", "rebuilt", "rolled_back", "unknown_device")),
        )
        self._repaired = self.tally("cdi_specs_repaired", "CDI specs of prepared claims that were written again")
        self.renewals = self.tally(
            "socket_renewals", "sockets whose file had vanished and that were made anew", "socket", known=_each(("service", "registrar"))
        )

    def claim(self, operation: str, outcome: str) -> None:
        """Counts."""
        self._claims.add(operation, outcome)

    def guard_wait(self, seconds: float, outcome: str) -> None:
        """Times."""
        self._guard.add(seconds, outcome)

    def sweep(self, outcome: str, count: int = 1) -> None:
        """Counts."""
        self._sweep.add(outcome, by=count)

    def journal(self, outcome: str) -> None:
        """Counts."""
        self._journal.add(outcome)

    def cdi_repaired(self, count: int) -> None:
        """Counts."""
        self._repaired.add(by=count)


def _each(*values: Sequence[str]) -> list[tuple[str, ...]]:
    return list(itertools.product(*values))


class Running:
    """The calls that run now."""

    def __init__(self, operations: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(operations, 0)

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
        began, outcome = time.monotonic(), "failed"
        metrics.running.add(operation, 1)
        try:
            response = method(request, context)
            outcome = "claim_failed" if any(one.error for one in response.claims.values()) else "ok"
            return response
        finally:
            metrics.running.add(operation, -1)
            metrics.requests.add(operation, outcome)
            metrics.latency.add(time.monotonic() - began, operation)
