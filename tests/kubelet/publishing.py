"""A publisher in its two threads, what the API server holds, and what was logged, for tests that wait for any of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from dra_driver.daemon.clock import SystemClock
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import Device, DeviceAttribute, ResourceSlice
from dra_driver.kubelet.publisher import Publisher
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.apiserver.kinds import BY_PATH

DRIVER, NODE = "toy.example.com", "node-a"

_RESOURCE = BY_PATH["resource.k8s.io/v1", "resourceslices"]


def devices(count: int, version: int = 0) -> list[Device]:
    return [Device(f"toy-{number}", {"v": DeviceAttribute(int_=version)}) for number in range(count)]


class FastClock(SystemClock):
    """Waits take no time and are noted; the hands move by them."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    def wait(self, event: threading.Event, timeout: float) -> bool:
        self.waits.append(timeout)
        self._ahead += timeout
        return event.wait(0.001)


class Told(logging.Handler):
    """Records of a logger by message; `wait` for the next one of a text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._changed = threading.Condition()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def of(self, text: str) -> list[dict[str, Any]]:
        return [vars(record) for record in self.records if record.getMessage().startswith(text)]

    def wait(self, text: str, count: int = 1) -> list[dict[str, Any]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(text)) >= count, timeout=20), [record.getMessage() for record in self.records]
        return self.of(text)


class _Bell(threading.Event):
    """Tells when the publisher has answered all that rang and waits for more."""

    def __init__(self) -> None:
        super().__init__()
        self._at_rest = threading.Event()

    def set(self) -> None:
        self._at_rest.clear()
        super().set()

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._at_rest.set()
        return super().wait(timeout)

    def rest(self) -> None:
        assert self._at_rest.wait(20)


class Running:
    """A publisher that runs until `stop`."""

    def __init__(self, api: ApiServer, publisher: Publisher, client: Client) -> None:
        self.api = api
        self.publisher = publisher
        self._bell = publisher._bell = _Bell()
        self._client = client
        self._supervisor = Supervisor()
        self._supervisor.start("watch", publisher.watch)
        self._supervisor.start("publish", publisher.publish, wake=self._interrupt)

    def stop(self) -> None:
        self._supervisor.stop(10)

    def _interrupt(self) -> None:
        self.publisher.wake()
        self._client.close()

    def settle(self) -> None:
        """Until a pass that began after now has found everything right, and nothing more has rung."""
        self.publisher.wake()
        self._bell.rest()
        assert self.publisher.published.is_set()
        assert self.publisher.problem == ""


def stored(api: ApiServer) -> list[ResourceSlice]:
    """What the server holds, by name."""
    found, *_ = api.store.page(_RESOURCE, "", lambda _: True, 0, "")
    return [msgspec.convert(entry.data, ResourceSlice) for entry in found]


def names(api: ApiServer) -> list[str]:
    """The devices in the order of the allocator; none while a pool is incomplete."""
    found = stored(api)
    by_pool: dict[str, list[ResourceSlice]] = {}
    for one in found:
        by_pool.setdefault(one.spec.pool.name, []).append(one)
    for group in by_pool.values():
        if any(one.spec.pool != group[0].spec.pool or one.spec.pool.resource_slice_count != len(group) for one in group):
            return []
    return [device.name for one in found for device in one.spec.devices]


def wait_for(api: ApiServer, condition: Callable[[], object]) -> None:
    assert api.wait_for(lambda: bool(condition()), 20), [one.spec for one in stored(api)]


def writes(api: ApiServer, since: int = 0) -> list[str]:
    """Requests that changed something, or were to."""
    return [f"{one.method} {one.path}" for one in api.requests(path="resourceslices")[since:] if one.method != "GET" and "dryRun" not in one.path]


def asked(api: ApiServer) -> list[str]:
    """Dry runs."""
    return [one.method for one in api.requests(path="dryRun=All")]
