"""Watching GPUs: is each of them still there, and does NVML answer for it?

Every few seconds each GPU is asked, in a thread of its own, because a call of NVML may never return. Such a thread is given up: it is counted, the
GPU is reported, and after a while another one asks again, up to a limit. So a GPU that hangs delays the questions to no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pynvml

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.gpu.inventory import Gpu
from dra_driver.gpu.nvml import Nvml

log = logging.getLogger(__name__)

INTERVAL = 5.0  # seconds between two questions
ANSWER_TIME = 10.0  # seconds after which a call is taken for one that never returns
MOST_HUNG_CALLS = 3  # of one GPU

LOST = "gpu-lost"
NOT_ANSWERING = "not-answering"
SOURCE = "poll"

_LOST = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound)
_ANSWERED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission)


class Report(Protocol):
    """Takes what was found: `kubelet.health.HealthBoard.report` for the node's pool."""

    def __call__(self, device: str, healthy: bool, message: str = "", *, source: str, reason: str = ..., fatal: bool = ...) -> None:
        """One look at one device."""


class FaultWatch:
    """The loop `run` reports every GPU again and again for as long as `leads` is true."""

    def __init__(
        self, nvml: Nvml, gpus: Sequence[Gpu], report: Report, *, leads: Callable[[], bool] = lambda: True, clock: Clock | None = None
    ) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self._report = report
        self._leads = leads
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._calls: dict[str, list[_Call]] = {gpu.name: [] for gpu in gpus}  # that have not returned

    @property
    def hung_calls(self) -> int:
        """Calls of NVML that have not returned in time; each keeps a thread."""
        with self._lock:
            return sum(call.hangs for calls in self._calls.values() for call in calls)

    def run(self, stop: threading.Event) -> None:
        """A loop: all GPUs at once when it begins to lead, then one after the other, so that their looks are spread over the interval."""
        began = False
        while not stop.is_set():
            leads = self._leads()
            for gpu in self._gpus if leads else ():
                self._look(gpu)
                if began and self._clock.wait(stop, INTERVAL / len(self._gpus)):
                    return
            if not (began and leads and self._gpus):
                self._clock.wait(stop, INTERVAL)
            began = leads

    def _look(self, gpu: Gpu) -> None:
        now = self._clock.monotonic()
        with self._lock:
            calls = list(self._calls[gpu.name])
        for call in calls:
            if not call.hangs and now - call.begin >= ANSWER_TIME:
                call.hangs = True
                log.warning(
                    "a call of NVML hangs, its thread is given up", extra={"device": gpu.name, "uuid": gpu.uuid, "hung_calls": self.hung_calls}
                )
        hung = sum(call.hangs for call in calls)
        if hung:
            self._report(gpu.name, False, "NVML does not answer for this GPU: a call hangs", source=SOURCE, reason=NOT_ANSWERING)
        if hung < len(calls):
            return  # one is on its way
        if not hung or (hung < MOST_HUNG_CALLS and now - calls[-1].begin >= ANSWER_TIME * 2**hung):
            self._ask(gpu, _Call(now))

    def _ask(self, gpu: Gpu, call: _Call) -> None:
        with self._lock:
            self._calls[gpu.name].append(call)
        threading.Thread(target=self._wait, args=(gpu, call), name=f"ask-{gpu.name}", daemon=True).start()

    def _wait(self, gpu: Gpu, call: _Call) -> None:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._nvml.nvmlDeviceGetHandleByPciBusId(gpu.pci_bus_id))
        except _ANSWERED:
            self._report(gpu.name, True, source=SOURCE)
        except _LOST as error:
            text = f"NVML: {error}: the GPU has fallen off the bus; drain the node and reboot it"
            self._report(gpu.name, False, text, source=SOURCE, reason=LOST, fatal=True)
        except pynvml.NVMLError as error:
            self._report(gpu.name, False, f"NVML does not answer for this GPU: {error}", source=SOURCE, reason=NOT_ANSWERING)
        else:
            self._report(gpu.name, True, source=SOURCE)
        finally:
            with self._lock:
                self._calls[gpu.name].remove(call)


@dataclass(eq=False)
class _Call:
    """A call of NVML that has not returned. `hangs` once it is given up."""

    begin: float
    hangs: bool = False
