"""What one round does: every contender through the same work, within seconds of each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from statistics import median

from bench.calls import FULL, THROTTLED, Kubelet, Work
from bench.claims import Claim
from bench.contenders import Contender
from bench.samples import Figures, Samples
from bench.timeline import Timeline
from e2e.cluster import Node
from e2e.kube import Kube

FEW, MANY, HELD, EDGE = 8, 208, 200, 20
"""GPUs of the small and of the large node, claims held at once, and how many of them are the first and the last."""

BLOCKS = 5
LIMIT = 60.0
SETTLE = 1.0
STEADY, HOLE_EVERY = 35.0, 3
"""The Go helper makes a pass 30 s after any change of a slice. A kubelet that restarts earlier than that after a start would profit from it by
chance, so the restart waits, and because it takes a minute it is not in every round."""


class Bench:
    """Everything that stays from round to round. `claims` are each contender's, one for each device that it will prepare."""

    def __init__(self, kube: Kube, node: Node, contenders: Sequence[Contender], claims: Mapping[str, Sequence[Claim]]) -> None:
        self._kube = kube
        self._node = node
        self._contenders = list(contenders)
        self._claims = claims

    def round(self, number: int) -> dict[str, Figures]:
        """One round: its figures by contender."""
        order = self._contenders[:: -1 if number % 2 else 1]
        figures: dict[str, Figures] = {one.name: {} for one in self._contenders}
        try:
            self._few_gpus(number, order, figures)
            for one in order:
                if not one.throttled:
                    self._many_gpus(one, figures[one.name])
        finally:
            for one in order:
                one.stop()
        return figures

    def _few_gpus(self, number: int, order: list[Contender], figures: dict[str, Figures]) -> None:
        with ExitStack() as undo:
            timeline = self._start_all(order, undo, figures)
            started = time.monotonic()
            kubelets = [Kubelet(one, self._claims[one.name][:FEW]) for one in order]
            for kubelet in kubelets:
                undo.callback(kubelet.close)
            time.sleep(SETTLE)
            for one in order:
                figures[one.name]["rss-rest"] = one.rss()
            self._calls([one for one in kubelets if not one.contender.throttled], FULL, BLOCKS, figures)
            self._calls([one for one in kubelets if one.contender.throttled], THROTTLED, 1, figures)
            if number % HOLE_EVERY == 0:
                time.sleep(max(0.0, started + STEADY - time.monotonic()))
                self._restart_kubelet(order, timeline, figures)
            for one in order:
                one.check()
                one.stop()

    def _start_all(self, order: list[Contender], undo: ExitStack, figures: dict[str, Figures]) -> Timeline:
        for found in self._kube.all("ResourceSlice", field_selector=f"spec.nodeName={self._node.name}"):
            self._kube.delete("ResourceSlice", found["metadata"]["name"])
        timeline = Timeline(self._kube)
        undo.callback(timeline.close)
        for one in order:
            began = time.monotonic()
            one.start(FEW)
            seen = timeline.wait_first(one.driver, began, LIMIT)
            figures[one.name]["start"] = (seen - began) * 1000
        return timeline

    def _calls(self, kubelets: list[Kubelet], work: Work, blocks: int, figures: dict[str, Figures]) -> None:
        for kubelet in kubelets:
            kubelet.singles(Samples(), work.warm_up)
        before = {kubelet.contender.name: kubelet.contender.cpu() for kubelet in kubelets}
        _in_blocks("single", kubelets, lambda kubelet, samples: kubelet.singles(samples, work.pairs // blocks), blocks, figures)
        for one in (kubelet.contender for kubelet in kubelets):
            figures[one.name]["cpu"] = (one.cpu() - before[one.name]) / work.pairs
            if not one.throttled:
                figures[one.name]["rss-after"] = one.rss()
        _in_blocks("batch", kubelets, lambda kubelet, samples: kubelet.batches(samples, work.batches // blocks), blocks, figures)
        _in_blocks("together", kubelets, lambda kubelet, samples: kubelet.at_once(samples, work.calls // blocks), blocks, figures)

    def _restart_kubelet(self, order: list[Contender], timeline: Timeline, figures: dict[str, Figures]) -> None:
        """One restart for all contenders: it removes all slices of the node."""
        began = time.monotonic()
        self._node.restart_kubelet()
        for one in order:
            timeline.wait_replaced(one.driver, began, LIMIT)
        ended = time.monotonic()
        for one in order:
            figures[one.name]["hole"] = timeline.absent(one.driver, began, ended)

    def _many_gpus(self, one: Contender, figures: Figures) -> None:
        one.start(MANY)
        with closing(Kubelet(one, self._claims[one.name])) as kubelet:
            self._kube.wait(f"{one.name} publishes {MANY} devices", lambda: self._devices(one) == MANY)
            time.sleep(SETTLE)
            took = kubelet.hold_all()
            time.sleep(SETTLE)
            first, last = median(took[:EDGE]), median(took[-EDGE:])
            figures |= {"held-first": first, "held-last": last, "held-growth": last / first, "rss-held": one.rss()}
            kubelet.release_all()
        one.check()
        one.stop()

    def _devices(self, one: Contender) -> int:
        found = self._kube.all("ResourceSlice", field_selector=f"spec.nodeName={self._node.name},spec.driver={one.driver}")
        return sum(len(slice_["spec"].get("devices") or ()) for slice_ in found)


def _in_blocks(kind: str, kubelets: list[Kubelet], block: Callable[[Kubelet, Samples], None], blocks: int, figures: dict[str, Figures]) -> None:
    """The blocks go round the contenders, there and back."""
    samples = {kubelet.contender.name: Samples() for kubelet in kubelets}
    for number in range(blocks):
        for kubelet in kubelets[:: -1 if number % 2 else 1]:
            block(kubelet, samples[kubelet.contender.name])
    for name, found in samples.items():
        figures[name] |= found.figures(kind)
