"""The kubelet's part: calls on a driver's service socket, each timed. The same code for every contender, so its own cost is on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.claims import NAMESPACE, Claim
from bench.contenders import Contender
from bench.samples import Samples
from dra_driver.kubelet._proto import dra_v1_pb2, dra_v1_pb2_grpc
from dra_driver.sandbox.kubelet.plugin import unix_channel

LIMIT = 45.0  # what the kubelet gives a call
BATCH = 8


@dataclass(frozen=True)
class Work:
    """How many pairs of prepare and unprepare: of one claim, of eight in a call, of each of eight callers. `warm_up` ones are not counted."""

    warm_up: int
    pairs: int
    batches: int
    calls: int


FULL = Work(warm_up=8, pairs=200, batches=25, calls=25)
THROTTLED = Work(warm_up=15, pairs=10, batches=2, calls=2)  # the warm-up uses up the burst of ten


class Kubelet:
    """Calls one contender about its claims."""

    def __init__(self, contender: Contender, claims: Sequence[Claim]) -> None:
        self.contender = contender
        self._claims = claims
        self._channel = unix_channel(str(contender.socket))
        self._stub = dra_v1_pb2_grpc.DRAPluginStub(self._channel)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def singles(self, samples: Samples, times: int) -> None:
        """One claim in a call, the claims by turns."""
        for index in range(times):
            self._pair(samples, self._claims[index % len(self._claims) :][:1])

    def batches(self, samples: Samples, times: int) -> None:
        """Eight claims in a call."""
        for _ in range(times):
            self._pair(samples, self._claims[:BATCH])

    def at_once(self, samples: Samples, times: int) -> None:
        """Eight callers at the same time, each with a claim of its own."""

        def call(claim: Claim) -> None:
            for _ in range(times):
                self._pair(samples, [claim])

        with ThreadPoolExecutor(BATCH) as pool:
            list(pool.map(call, self._claims[:BATCH]))

    def hold_all(self) -> list[float]:
        """Prepares every claim, one after another, and keeps them; ms of each."""
        return [self._prepare([claim]) for claim in self._claims]

    def release_all(self) -> None:
        """Unprepares every claim."""
        for start in range(0, len(self._claims), BATCH):
            self._unprepare(self._claims[start : start + BATCH])

    def _pair(self, samples: Samples, claims: Sequence[Claim]) -> None:
        samples.prepare.append(self._prepare(claims))
        samples.unprepare.append(self._unprepare(claims))

    def _prepare(self, claims: Sequence[Claim]) -> float:
        response, took = _timed(self._stub.NodePrepareResources, dra_v1_pb2.NodePrepareResourcesRequest(claims=_wire(claims)))
        for claim in claims:
            answer = response.claims[claim.uid]
            assert not answer.error, answer.error
            assert [bool(device.cdi_device_ids) for device in answer.devices] == [True]
        return took

    def _unprepare(self, claims: Sequence[Claim]) -> float:
        response, took = _timed(self._stub.NodeUnprepareResources, dra_v1_pb2.NodeUnprepareResourcesRequest(claims=_wire(claims)))
        for claim in claims:
            assert claim.uid in response.claims
            assert not response.claims[claim.uid].error, response.claims[claim.uid].error
        return took


def _wire(claims: Sequence[Claim]) -> list[dra_v1_pb2.Claim]:
    return [dra_v1_pb2.Claim(namespace=NAMESPACE, name=one.name, uid=one.uid) for one in claims]


def _timed(method: Callable[..., Any], request: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    response = method(request, timeout=LIMIT, wait_for_ready=True)
    return response, (time.perf_counter() - began) * 1000
