"""What is reported of GPUs that are lost, that fail or that never answer."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from dra_driver.gpu.faults import ANSWER_TIME, INTERVAL, LOST, MOST_HUNG_CALLS, NOT_ANSWERING, FaultWatch
from dra_driver.gpu.inventory import discover
from tests.gpu.conftest import Node

FIRST, SECOND = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"


class Hands:
    """A clock; `wait` is never called."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, event: threading.Event, timeout: float) -> bool:
        raise AssertionError


class Bed:
    """Two GPUs. Calls about the second one fail with `error`, or wait in `hung` while `hang` is set."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml, paths = node
        self.reports: queue.Queue[tuple[str, bool, str, bool]] = queue.Queue()
        self.error: Exception | None = None
        self.hang = False
        self.release = threading.Event()
        self.hung = threading.Semaphore(0)
        self.clock = Hands()
        self.leading = True
        self.gpus = discover(nvml, paths).gpus
        self._answer = nvml.nvmlDeviceGetMemoryInfo
        self._second = ctypes.cast(nvml.nvmlDeviceGetHandleByIndex(1), ctypes.c_void_p).value
        monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", self._memory)
        self.watch = FaultWatch(nvml, self.gpus, self._report, leads=lambda: self.leading, clock=self.clock)

    def look(self) -> None:
        """One round of the loop."""
        for gpu in self.gpus:
            self.watch._look(gpu)

    def told(self, count: int) -> set[tuple[str, bool, str, bool]]:
        """The next reports; no more may be there."""
        found = {self.reports.get(timeout=20) for _ in range(count)}
        assert self.reports.empty()
        return found

    def _report(self, device: str, healthy: bool, message: str = "", *, source: str, reason: str = "", fatal: bool = False) -> None:
        assert source == "poll"
        assert bool(message) is not healthy
        self.reports.put((device, healthy, reason, fatal))

    def _memory(self, handle: Any) -> Any:
        if ctypes.cast(handle, ctypes.c_void_p).value == self._second:
            if self.hang:
                self.hung.release()
                self.release.wait()
            if self.error is not None:
                raise self.error
        return self._answer(handle)


@pytest.fixture
def bed(h100: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    one = Bed(h100, monkeypatch)
    yield one
    one.release.set()


@pytest.mark.parametrize(
    ("error", "report"),
    [
        (None, (True, "", False)),
        (pynvml.NVMLError_NotSupported(), (True, "", False)),
        (pynvml.NVMLError_NoPermission(), (True, "", False)),
        (pynvml.NVMLError_GpuIsLost(), (False, LOST, True)),
        (pynvml.NVMLError_NotFound(), (False, LOST, True)),
        (pynvml.NVMLError_Unknown(), (False, NOT_ANSWERING, False)),
        (pynvml.NVMLError_Timeout(), (False, NOT_ANSWERING, False)),
        (pynvml.NVMLError_ResetRequired(), (False, NOT_ANSWERING, False)),
    ],
    ids=str,
)
def test_what_nvml_answers_is_reported_for_each_gpu(bed: Bed, error: Exception | None, report: tuple[bool, str, bool]) -> None:
    bed.error = error
    bed.look()
    assert bed.told(2) == {(FIRST, True, "", False), (SECOND, *report)}


def test_a_call_that_hangs_is_given_up_and_reported_and_delays_no_other(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    bed.hang = True
    bed.look()
    assert bed.hung.acquire(timeout=20)
    assert bed.told(1) == {(FIRST, True, "", False)}
    bed.clock.time += ANSWER_TIME - 1
    bed.look()
    assert bed.told(1) == {(FIRST, True, "", False)}
    assert bed.watch.hung_calls == 0
    for _ in range(3):
        bed.clock.time += 1
        bed.look()
        assert bed.told(2) == {(FIRST, True, "", False), (SECOND, False, NOT_ANSWERING, False)}
        assert bed.watch.hung_calls == 1
    assert [record.message for record in caplog.records] == ["a call of NVML hangs, its thread is given up"]


def test_hung_calls_are_limited_and_their_end_is_noticed(bed: Bed) -> None:
    bed.hang = True
    begun = []
    while bed.clock.time < 1000:
        before = len(bed.watch._calls[SECOND])
        bed.look()
        if len(bed.watch._calls[SECOND]) > before:
            begun.append(bed.clock.time)
            assert bed.hung.acquire(timeout=20)
        bed.clock.time += INTERVAL
    assert begun == [0, 2 * ANSWER_TIME, 6 * ANSWER_TIME]
    assert bed.watch.hung_calls == len(begun) == MOST_HUNG_CALLS
    bed.hang = False
    bed.release.set()
    well = 0
    while well < MOST_HUNG_CALLS:
        well += bed.reports.get(timeout=20) == (SECOND, True, "", False)


def test_only_the_instance_that_leads_asks(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    rounds = iter([True])

    def wait(event: threading.Event, timeout: float) -> bool:
        assert timeout == INTERVAL
        bed.leading = next(rounds, False)
        if not bed.leading:
            stop.set()
        return stop.is_set()

    bed.leading = False
    monkeypatch.setattr(bed.clock, "wait", wait)
    bed.watch.run(stop)
    assert bed.told(2) == {(FIRST, True, "", False), (SECOND, True, "", False)}
