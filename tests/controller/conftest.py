"""The controller on an API server double."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_driver.sandbox.apiserver import ApiServer
from tests.clocks import HandClock
from tests.controller.bed import ControllerBed, LogLines


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
