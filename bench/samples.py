"""Times of calls, and what is said about many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

Figures = dict[str, float]
"""What a round found about one contender, by the key of a measure (`bench.measures`)."""


@dataclass
class Samples:
    """Pairs of calls, in ms."""

    prepare: list[float] = field(default_factory=list)
    unprepare: list[float] = field(default_factory=list)

    def figures(self, kind: str) -> Figures:
        """Four figures, under keys that begin with `kind`."""
        return {
            f"{kind}-prepare-p50": median(self.prepare),
            f"{kind}-prepare-p99": percentile(self.prepare, 99),
            f"{kind}-unprepare-p50": median(self.unprepare),
            f"{kind}-unprepare-p99": percentile(self.unprepare, 99),
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """Between the two nearest values, and never beyond the greatest."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Spread:
    """The median over the rounds, and where 80 % of them lie."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """At least one value."""
        return cls(median(values), percentile(values, 10), percentile(values, 90))
