"""Objects that the controller looks at, a log that can be waited for, and the controller on an API server double."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from dra_driver.controller.class_controller import ClassController
from dra_driver.daemon.probes import Probes
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.k8s.client import Client
from dra_driver.k8s.events import EVENTS, Event
from dra_driver.k8s.objects.meta import ObjectMeta
from dra_driver.k8s.objects.resource import (
    CELDeviceSelector,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.apiserver.kinds import BY_PATH

GPU = "gpu.nvidia.com"
GOOD = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
INVALID = "device.drvier == 'gpu.nvidia.com'"
FAILING = "device.attributes['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"
OPTIONAL = "device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'"
NOWHERE = "device.driver == 'nic.example.com'"


def gpu(name: str, **changes: Any) -> Device:
    parts: dict[str, Any] = {"attributes": {"type": DeviceAttribute(string="gpu")}, "capacity": {"memory": DeviceCapacity("80Gi")}}
    return Device(name, **(parts | changes))


def a_class(name: str, *expressions: str, uid: str = "") -> DeviceClass:
    selectors = [DeviceSelector(CELDeviceSelector(expression)) for expression in expressions]
    return DeviceClass(metadata=ObjectMeta(name=name, uid=uid), spec=DeviceClassSpec(selectors))


def a_slice(node: str, *devices: Device, driver: str = GPU, generation: int = 1, version: str = "", name: str = "", **spec: Any) -> ResourceSlice:
    where = spec or {"node_name": node}
    pool = ResourcePool(node, 1, generation)
    return ResourceSlice(
        metadata=ObjectMeta(name=name or f"{driver}-{node}", resource_version=version),
        spec=ResourceSliceSpec(driver, pool, devices=list(devices), **where),
    )


class LogLines(logging.Handler):
    """Collects the records of the project's loggers while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self.records: list[logging.LogRecord] = []

    def __enter__(self) -> Self:
        logger = logging.getLogger("dra_driver")
        self._level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("dra_driver")
        logger.removeHandler(self)
        logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def of(self, message: str) -> list[dict[str, Any]]:
        return [vars(record) for record in self.records if record.getMessage() == message]

    def wait(self, message: str, condition: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(condition, self.of(message))), 20), [record.getMessage() for record in self.records]
            return next(filter(condition, self.of(message)))

    def wait_judged(self, name: str, state: str) -> dict[str, Any]:
        return self.wait("device class judged", lambda line: line["class"] == name and line["state"] == state)


class ControllerBed:
    """The running controller and what it has written."""

    def __init__(self, api: ApiServer, log: LogLines) -> None:
        self.api = api
        self.log = log
        self.client = Client(api.connection, "dra-driver-controller")
        self.controller = ClassController(self.client, debounce=0.01)
        self.probes = Probes()
        self.controller.add_to(self.probes)
        self._supervisor = Supervisor(probes=self.probes)

    def __enter__(self) -> Self:
        self.controller.start(self._supervisor)
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop(20)
        self.client.close()

    def events(self) -> list[Event]:
        return [event for event in self.client.list(EVENTS, "default").items if event.reporting_controller == "dra-driver-controller"]

    def wait_event(self, name: str, reason: str) -> Event:
        resource = BY_PATH[EVENTS.api_version, EVENTS.plural]

        def found(data: Mapping[str, Any]) -> bool:
            return bool(data["regarding"]["name"] == name and data["reason"] == reason)

        assert self.api.wait_for(lambda: bool(self.api.store.page(resource, "default", found, 0, "")[0]), 20), json.dumps(
            [entry.data for entry in self.api.store.page(resource, "default", lambda _: True, 0, "")[0]]
        )
        return next(event for event in self.events() if event.regarding.name == name and event.reason == reason)
