"""What the bench makes of its measurements: ratios within a round, medians, spans, aims."""

from __future__ import annotations

import json

import pytest

from bench import measures, report
from bench.samples import Samples, Spread, percentile

ROUNDS = [
    {"ours": {"start": 300.0, "hole": 0.1}, "peer": {"start": 1000.0, "hole": 30.0}},
    {"ours": {"start": 1200.0}, "peer": {"start": 2000.0}},
    {"ours": {"start": 400.0}, "peer": {"start": 1000.0}},
]


def row(key: str, rounds: list[dict[str, dict[str, float]]]) -> measures.Row:
    return next(one for one in measures.rows(rounds, ours="ours", aimed_at="peer") if one.measure.key == key)


def test_a_ratio_is_taken_within_each_round_before_the_median() -> None:
    found = row("start", ROUNDS)
    assert found.ratios["peer"].median == pytest.approx(0.4)  # of 0.3, 0.6 and 0.4; the ratio of the medians is the same machine's only by chance
    assert found.ratios["peer"].low == pytest.approx(0.32)
    assert found.ratios["peer"].high == pytest.approx(0.56)
    assert found.figures["ours"].median == 400.0


@pytest.mark.parametrize(("ours", "met"), [(300.0, True), (400.0, True), (401.0, False)])
def test_an_aim_is_met_when_the_median_of_the_ratios_meets_it(ours: float, met: bool) -> None:
    assert row("start", [{"ours": {"start": ours}, "peer": {"start": 1000.0}}]).met is met


@pytest.mark.parametrize(("ours", "met"), [(0.9, True), (1.1, False)])
def test_an_absolute_aim_looks_at_our_own_figure(ours: float, met: bool) -> None:
    assert row("hole", [{"ours": {"hole": ours}, "peer": {"hole": 30.0}}]).met is met


def test_a_measure_that_only_some_rounds_have_is_compared_in_those() -> None:
    found = row("hole", ROUNDS)
    assert found.ratios["peer"].median == pytest.approx(0.1 / 30)
    assert row("cpu", ROUNDS).figures == {}
    assert row("cpu", ROUNDS).met is None


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile(list(range(101)), 99) == 99
    assert percentile([5.0], 99) == 5.0
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)


def test_samples_give_the_four_figures_of_their_kind() -> None:
    figures = Samples(prepare=[1.0, 2.0, 3.0], unprepare=[4.0]).figures("batch")
    assert figures == {
        "batch-prepare-p50": 2.0,
        "batch-prepare-p99": pytest.approx(2.98),
        "batch-unprepare-p50": 4.0,
        "batch-unprepare-p99": 4.0,
    }


def test_every_figure_of_samples_has_a_row() -> None:
    keys = {one.key for one in measures.MEASURES}
    assert all(key in keys for kind in ("single", "batch", "together") for key in Samples([1.0], [1.0]).figures(kind))


def test_the_table_has_figures_ratios_and_the_verdict() -> None:
    text = report.table(measures.rows(ROUNDS, ours="ours", aimed_at="peer"), ours="ours", against=["peer"])
    cells = next([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "process start" in line)
    assert cells == ["process start to first slice, ms", "400", "1000", "0.40 (0.32-0.56)", "<= 0.4x", "yes"]
    assert "| -" in next(line for line in text.splitlines() if "processor time" in line)
    assert len({len(line) for line in text.splitlines()}) == 1


def test_the_json_has_the_same_content_and_every_round() -> None:
    content = json.loads(report.as_json(measures.rows(ROUNDS, ours="ours", aimed_at="peer"), ROUNDS))
    start = next(one for one in content["measures"] if one["key"] == "start")
    assert (start["met"], start["unit"], start["figures"]["ours"]["median"]) == (True, "ms", 400.0)
    assert content["rounds"] == ROUNDS


def test_one_value_is_its_own_spread() -> None:
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)


def test_a_table_of_noise_has_no_aims() -> None:
    text = report.table(measures.rows(ROUNDS, ours="ours", aimed_at="peer"), ours="ours", against=["peer"], aims=False)
    assert "| aim" not in text
    assert "yes" not in text
