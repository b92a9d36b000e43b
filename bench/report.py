"""The outcome for people (a table in Markdown, so that it can go into the documentation as it is) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench.measures import Aim, Row
from bench.samples import Figures, Spread


def table(found: Sequence[Row], *, ours: str, against: Sequence[str], aims: bool = True) -> str:
    """One line for each measure: figures, our ratios with their spans, the aim and whether it is met."""
    heading = ["", ours, *against, *(f"ratio to {name} (10-90 %)" for name in against)]
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    if aims:
        lines = [[*lines[0], "aim", "met"], [*lines[1], "---", "---"]]
    for row in found:
        figures = [_figure(row.figures.get(name), row.measure.unit) for name in (ours, *against)]
        ratios = [_ratio(row.ratios.get(name)) for name in against]
        verdict = [_aim(row.measure.aim, row.measure.unit), {None: "", True: "yes", False: "**no**"}[row.met]]
        lines.append([f"{row.measure.title}, {row.measure.unit}", *figures, *ratios, *(verdict if aims else [])])
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines)


def as_json(found: Sequence[Row], rounds: Sequence[Mapping[str, Figures]]) -> str:
    """The table's content and every round's figures."""
    measures = [
        {
            "key": row.measure.key,
            "title": row.measure.title,
            "unit": row.measure.unit,
            "aim": asdict(row.measure.aim) if row.measure.aim else None,
            "met": row.met,
            "figures": {name: asdict(spread) for name, spread in row.figures.items()},
            "ratios": {name: asdict(spread) for name, spread in row.ratios.items()},
        }
        for row in found
    ]
    return json.dumps({"measures": measures, "rounds": rounds}, indent=2)


def _figure(spread: Spread | None, unit: str) -> str:
    if spread is None:
        return "-"
    return _number(spread.median, 0 if unit == "MiB" else 2)


def _ratio(spread: Spread | None) -> str:
    return "-" if spread is None else f"{_number(spread.median, 2)} ({_number(spread.low, 2)}-{_number(spread.high, 2)})"


def _aim(aim: Aim | None, unit: str) -> str:
    if aim is None:
        return ""
    return f"<= {aim.most:g} {unit}" if aim.absolute else f"<= {aim.most:g}x"


def _number(value: float, decimals: int) -> str:
    """Three digits that say something, no more: a measurement has none."""
    if value >= 100:
        decimals = 0
    elif value >= 10:
        decimals = min(decimals, 1)
    return f"{value:.{decimals}f}"
