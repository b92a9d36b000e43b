"""The double, a client of it, a clock whose hands the waits turn, and the server of the contract tests."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from dra_driver.k8s.client import Client
from dra_driver.k8s.config import kubeconfig
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, RESOURCE_SLICES
from dra_driver.sandbox.apiserver import ApiServer
from tests.k8s.contract import KUBECONFIG, Server


class FakeClock:
    """Waiting takes no time and moves the hands; `at` calls back once they have passed a point."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.waits: list[float] = []
        self._alarms: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, event: threading.Event, timeout: float) -> bool:
        if event.is_set():
            return True
        self.waits.append(timeout)
        self.time += timeout
        for alarm in [alarm for alarm in self._alarms if alarm[0] <= self.time]:
            self._alarms.remove(alarm)
            alarm[1]()
        return event.is_set()

    def at(self, seconds: float, callback: Callable[[], object]) -> None:
        self._alarms.append((self.time + seconds, callback))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def client(api: ApiServer, clock: FakeClock) -> Iterator[Client]:
    found = Client(api.connection, "test", clock)
    yield found
    found.close()


@pytest.fixture(params=["double", *(["real"] if KUBECONFIG else [])])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    driver = f"t{uuid.uuid4().hex[:8]}.example.com"
    if request.param == "double":
        with ApiServer() as double:
            client = Client(double.connection, "contract")
            yield Server(client, driver, double)
            client.close()
        return
    client = Client(kubeconfig(KUBECONFIG), "contract")
    yield Server(client, driver, None)
    client.delete_collection(RESOURCE_SLICES, field_selector=f"spec.driver={driver}")
    for claim in client.list(RESOURCE_CLAIMS, "default").items:
        if driver in claim.metadata.name:
            client.delete(RESOURCE_CLAIMS, claim.metadata.name, "default")
    client.close()
