"""What is measured, in the order of the table, and what we aim at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.samples import Figures, Spread


@dataclass(frozen=True)
class Aim:
    """`most` is allowed, as a ratio to the unthrottled peer or (`absolute`) as our own figure."""

    most: float
    absolute: bool = False


@dataclass(frozen=True)
class Measure:
    """One row. Less is better everywhere."""

    key: str
    title: str
    unit: str
    aim: Aim | None = None


def _calls(kind: str, title: str, aim: Aim | None = None) -> tuple[Measure, ...]:
    return (
        Measure(f"{kind}-prepare-p50", f"prepare, {title}, p50", "ms", aim),
        Measure(f"{kind}-prepare-p99", f"prepare, {title}, p99", "ms"),
        Measure(f"{kind}-unprepare-p50", f"unprepare, {title}, p50", "ms"),
        Measure(f"{kind}-unprepare-p99", f"unprepare, {title}, p99", "ms"),
    )


_MEMORY = Aim(1.2)

MEASURES = (
    Measure("start", "process start to first slice", "ms", Aim(0.4)),
    *_calls("single", "one claim", Aim(0.9)),
    *_calls("batch", "8 claims in a call", Aim(0.35)),
    *_calls("together", "8 callers at once", Aim(0.6)),
    Measure("held-first", "prepare, first 20 of 200 held, p50", "ms"),
    Measure("held-last", "prepare, last 20 of 200 held, p50", "ms"),
    Measure("held-growth", "last 20 against first 20", "x", Aim(1.1, absolute=True)),
    Measure("cpu", "processor time, prepare and unprepare", "ms", Aim(1.0)),
    Measure("rss-rest", "memory at rest", "MiB", _MEMORY),
    Measure("rss-after", "memory after 200 prepares", "MiB", _MEMORY),
    Measure("rss-held", "memory with 200 held", "MiB", Aim(1.1)),
    Measure("hole", "slices absent after a kubelet restart", "s", Aim(1.0, absolute=True)),
)


@dataclass(frozen=True)
class Row:
    """One measure: figures by contender, and our ratio to each other one. A contender that was not measured is missing."""

    measure: Measure
    figures: Mapping[str, Spread]
    ratios: Mapping[str, Spread]
    met: bool | None


def rows(rounds: Sequence[Mapping[str, Figures]], *, ours: str, aimed_at: str) -> list[Row]:
    """The table of these rounds. A ratio is taken within a round, before the median: only then was the machine the same for both."""
    names = list(dict.fromkeys(name for one in rounds for name in one))
    table = []
    for measure in MEASURES:
        values = {name: found for name in names if (found := [one[name][measure.key] for one in rounds if measure.key in one.get(name, {})])}
        figures = {name: Spread.of(found) for name, found in values.items()}
        others = [name for name in values if name != ours and ours in values]
        ratios = {name: Spread.of([mine / theirs for mine, theirs in zip(values[ours], values[name], strict=True) if theirs]) for name in others}
        table.append(Row(measure, figures, ratios, _met(measure.aim, figures.get(ours), ratios.get(aimed_at))))
    return table


def _met(aim: Aim | None, own: Spread | None, ratio: Spread | None) -> bool | None:
    judged = own if aim and aim.absolute else ratio
    return None if aim is None or judged is None else judged.median <= aim.most
