"""The controller on an API server double."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dra_driver.sandbox.apiserver import ApiServer
from tests.controller.bed import ControllerBed, LogLines


class HandClock:
    """Stands still until a test sets `time`; waiting is not allowed to take time."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.25

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, event: threading.Event, timeout: float) -> bool:
        self.time += timeout
        return event.is_set()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def log() -> Iterator[LogLines]:
    with LogLines() as lines:
        yield lines


@pytest.fixture
def bed(api: ApiServer, log: LogLines) -> Iterator[ControllerBed]:
    with ControllerBed(api, log) as running:
        yield running
