"""Pods with claims that come and go without a pause, and what the kubelet says about them."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from e2e.kube import HANG, Kube, claim_ref, pod, template

RESTART = ("is not registered", "code = Canceled", "code = Unavailable", "connection error")
"""In an event: the kubelet's own doing around its restart, when it knows no driver yet, or ends with a call under way."""


@dataclass
class Traffic:
    """`workers` pods at a time on one node, each with a GPU from a template of its own namespace. Leaving the context waits for the last pods."""

    kube: Kube
    namespace: str
    node: str
    workers: int = 3
    done: int = 0
    slowest: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(self.workers)]

    def __enter__(self) -> Self:
        self.kube.apply(template(self.namespace, "one-gpu"))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(2 * HANG)

    def goes_on(self, pods: int = 6) -> None:
        """Until so many more pods have come and gone."""
        goal = self.done + pods
        self.kube.wait(f"{pods} more pods have come and gone", lambda: self.done >= goal or self.problems)
        assert self.problems == []

    def failures(self) -> list[str]:
        """What the kubelet reported of preparing and unpreparing for any pod."""
        reasons = ("FailedPrepareDynamicResources", "FailedUnprepareDynamicResources")
        return [one.get("message", "") for one in self.kube.all("Event", self.namespace) if one["reason"] in reasons]

    def unexpected(self) -> list[str]:
        """Those that are not the kubelet's own doing around its restart."""
        return [text for text in self.failures() if not any(known in text for known in RESTART)]

    def _work(self, number: int) -> None:
        for turn in itertools.count():
            if self._end.is_set():
                return
            name = f"pod-{number}-{turn}"
            try:
                self._live(name)
            except Exception as error:  # noqa: BLE001
                self.problems.append(f"{name}: {error}")
                return
            with self._lock:
                self.done += 1

    def _live(self, name: str) -> None:
        began = time.monotonic()
        self.kube.create(pod(self.namespace, name, [claim_ref("gpu", template="one-gpu")], node=self.node))
        self.kube.wait_running_after_a_failure(self.namespace, name)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.kube.delete("Pod", name, self.namespace)
        self.kube.wait_gone("Pod", name, self.namespace)
