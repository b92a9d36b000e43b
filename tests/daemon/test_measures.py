"""What a program counts and times, as Prometheus reads it."""

from __future__ import annotations

import math
import threading

from dra_driver.daemon.measures import BUCKETS, Measures


def read(measures: Measures) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for metric in measures.collect() for sample in metric.samples}


def test_counters_are_shown_before_the_first_event_where_their_labels_are_known() -> None:
    measures = Measures("p_")
    plain = measures.tally("plain", "m")
    tally = measures.tally("calls", "m", "operation", "outcome", known=[("prepare", "ok")])
    assert read(measures) == {("p_plain_total",): 0, ("p_calls_total", "prepare", "ok"): 0}
    plain.add(by=2)
    tally.add("prepare", "ok")
    tally.add("unprepare", "failed")
    assert read(measures) == {("p_plain_total",): 2, ("p_calls_total", "prepare", "ok"): 1, ("p_calls_total", "unprepare", "failed"): 1}


def test_durations_fall_into_buckets_that_include_their_limit() -> None:
    measures = Measures("")
    durations = measures.durations("d", "m", "operation", known=[("b",)])
    for seconds in (0.0, BUCKETS[0], BUCKETS[0] + 0.001, BUCKETS[-1], BUCKETS[-1] + 1):
        durations.add(seconds, "a")
    found = read(measures)
    assert found["d_bucket", "a", str(BUCKETS[0])] == 2
    assert found["d_bucket", "a", str(BUCKETS[1])] == 3
    assert found["d_bucket", "a", str(BUCKETS[-1])] == 4
    assert found["d_bucket", "a", "+Inf"] == found["d_count", "a"] == 5
    assert math.isclose(found["d_sum", "a"], 2 * BUCKETS[0] + 0.001 + 2 * BUCKETS[-1] + 1)
    assert found["d_count", "b"] == 0


def test_gauges_and_foreign_counters_are_asked_when_somebody_reads() -> None:
    measures = Measures("")
    values: dict[tuple[str, ...], float] = {("a",): 1.0}
    measures.gauge("g", "m", lambda: values, "l")
    measures.gauge("yes", "m", lambda: True)
    measures.counted("c", "m", lambda: {(): 7})
    assert read(measures) == {("g", "a"): 1, ("yes",): 1, ("c_total",): 7}
    values[("b",)] = 2
    assert read(measures)["g", "b"] == 2


def test_no_event_is_lost_between_threads() -> None:
    measures = Measures("")
    tally, durations = measures.tally("t", "m"), measures.durations("d", "m")

    def work() -> None:
        for _ in range(2000):
            tally.add()
            durations.add(0.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(measures)["t_total",] == read(measures)["d_count",] == 8000
