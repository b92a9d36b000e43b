"""The controller's metrics, read from the controller whenever Prometheus asks: so none is forgotten and none outlives its class."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from dra_driver.controller.class_controller import ClassController
from dra_driver.controller.report import State
from dra_driver.k8s.client import Client

PREFIX = "dra_driver_controller_"


class ControllerMetrics(Collector):
    """For a registry. No label has as many values as there are devices or nodes."""

    def __init__(self, controller: ClassController, client: Client) -> None:
        self._controller = controller
        self._client = client

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._of_classes()
        controller = self._controller
        yield GaugeMetricFamily(f"{PREFIX}published_devices", "devices in the newest generation of all pools", controller.judge.devices)
        yield CounterMetricFamily(f"{PREFIX}evaluations", "evaluations of one selector on one device", controller.judge.evaluations)
        yield SummaryMetricFamily(
            f"{PREFIX}pass_duration_seconds", "time of a pass over all classes", count_value=controller.passes, sum_value=controller.pass_seconds
        )
        events = CounterMetricFamily(f"{PREFIX}event_writes", "attempts to write an Event", labels=["result"])
        events.add_metric(["written"], controller.announcer.written)
        events.add_metric(["failed"], controller.announcer.failed)
        yield events
        yield from self._of_watches()

    def _of_classes(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(f"{PREFIX}class_state", "1 for the state that the class is in, 0 for the others", labels=["device_class", "state"])
        matching = GaugeMetricFamily(f"{PREFIX}class_matching_devices", "devices that the class chooses", labels=["device_class"])
        nodes = GaugeMetricFamily(f"{PREFIX}class_matching_nodes", "nodes with a device that the class chooses", labels=["device_class"])
        failing = GaugeMetricFamily(f"{PREFIX}class_failing_devices", "devices on which a selector of the class fails", labels=["device_class"])
        for report in self._controller.reports.values():
            for one in State:
                state.add_metric([report.name, one], float(report.state is one))
            matching.add_metric([report.name], report.matching)
            nodes.add_metric([report.name], report.nodes)
            failing.add_metric([report.name], report.failing)
        yield from (state, matching, nodes, failing)

    def _of_watches(self) -> Iterator[Metric]:
        failures = CounterMetricFamily(f"{PREFIX}watch_failures", "lists and watches that failed", labels=["kind"])
        silence = GaugeMetricFamily(f"{PREFIX}watch_silence_seconds", "time since the API server last said anything", labels=["kind"])
        for kind, reflector in (("DeviceClass", self._controller.classes), ("ResourceSlice", self._controller.slices)):
            failures.add_metric([kind], reflector.failures)
            silence.add_metric([kind], reflector.age())
        yield from (failures, silence)
        yield CounterMetricFamily(f"{PREFIX}unreadable_objects", "objects that did not fit and were treated as absent", self._client.unreadable)
