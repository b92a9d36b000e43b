"""What a program counts and times, kept cheaply while it runs and turned into Prometheus' families when somebody asks.

Prometheus' own client takes longer to import than a node program takes to publish its first slices, so it is loaded with the first scrape.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0)
"""Upper limits in seconds; the last one is the kubelet's patience."""


class Tally:
    """A counter for each combination of label values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Counts."""
        with self._lock:
            self._counts[labels] = self._counts.get(labels, 0) + by

    def values(self) -> dict[tuple[str, ...], float]:
        """What was counted."""
        with self._lock:
            return dict(self._counts)


class Durations:
    """A histogram of seconds for each combination of label values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, ...], tuple[list[int], float]] = {}

    def expect(self, *labels: str) -> None:
        """These are shown also before there is one."""
        with self._lock:
            self._found.setdefault(labels, ([0] * (len(BUCKETS) + 1), 0.0))

    def add(self, seconds: float, *labels: str) -> None:
        """Notes one."""
        self.expect(*labels)
        with self._lock:
            counts, total = self._found[labels]
            counts[bisect.bisect_left(BUCKETS, seconds)] += 1
            self._found[labels] = counts, total + seconds

    def values(self) -> dict[tuple[str, ...], tuple[list[int], float]]:
        """For each label values the numbers of each bucket (not of those below it) and the sum."""
        with self._lock:
            return {labels: (list(counts), total) for labels, (counts, total) in self._found.items()}


class Measures:
    """All that one program measures; a collector for a registry. Names are given without `prefix`.

    Label values in `known` are shown from the start, so that the first event is an increase.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._families: list[Callable[[], Metric]] = []

    def tally(self, name: str, meaning: str, *labels: str, known: Sequence[tuple[str, ...]] = ()) -> Tally:
        """A counter that is counted where something happens."""
        tally = Tally()
        for values in [()] if not labels else known:
            tally.add(*values, by=0)
        self.counted(name, meaning, tally.values, *labels)
        return tally

    def counted(self, name: str, meaning: str, values: Callable[[], Mapping[tuple[str, ...], float]], *labels: str) -> None:
        """A counter that somebody keeps already."""

        def family() -> Metric:
            from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415  slow to import

            found = CounterMetricFamily(self._prefix + name, meaning, labels=labels)
            for of, value in values().items():
                found.add_metric(of, value)
            return found

        self._families.append(family)

    def durations(self, name: str, meaning: str, *labels: str, known: Sequence[tuple[str, ...]] = ()) -> Durations:
        """A histogram."""
        durations = Durations()
        for values in known:
            durations.expect(*values)

        def family() -> Metric:
            from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

            found = HistogramMetricFamily(self._prefix + name, meaning, labels=labels)
            for of, (counts, total) in durations.values().items():
                limits = [*(str(limit) for limit in BUCKETS), "+Inf"]
                found.add_metric(of, [(limit, sum(counts[: place + 1])) for place, limit in enumerate(limits)], total)
            return found

        self._families.append(family)
        return durations

    def gauge(self, name: str, meaning: str, value: Callable[[], float | Mapping[tuple[str, ...], float]], *labels: str) -> None:
        """Something that is asked for its value; NaN where it cannot be told."""

        def family() -> Metric:
            from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

            found = GaugeMetricFamily(self._prefix + name, meaning, labels=labels)
            answer = value()
            for of, number in (answer if isinstance(answer, Mapping) else {(): answer}).items():
                found.add_metric(of, number)
            return found

        self._families.append(family)

    def collect(self) -> Iterator[Metric]:
        """All of them, in the order in which they were made."""
        for family in list(self._families):
            yield family()
