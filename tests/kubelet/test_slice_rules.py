"""What our rules refuse of a slice, against what a real API server said of the same one, and what they refuse of a pool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import SliceError
from dra_driver.k8s.objects.resource import Counter, CounterSet, Device, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, ResourceSlice
from dra_driver.kubelet import slice_rules, slices
from dra_driver.kubelet.slice_features import Pool
from tests.kubelet.slice_cases import slice_of

VERDICTS = [json.loads(line) for line in (Path(__file__).parent / "vectors" / "slice_verdicts.jsonl").read_text().splitlines()]
"""Recorded from Kubernetes 1.37.2 with all gates of these fields on, by e2e/record_slice_verdicts.py."""


def without_random_name(field: str, message: str) -> str:
    return re.sub(r'[a-z0-9]{5}"', '"', message, count=1) if field == "metadata.name" else message


@pytest.mark.parametrize("verdict", VERDICTS)
def test_our_rules_find_what_the_api_server_found(verdict: dict[str, Any]) -> None:
    one = msgspec.convert(verdict["slice"], ResourceSlice)
    found = {(error.field, error.reason, without_random_name(error.field, error.body())) for error in slice_rules.problems(one)}
    assert found == {(field, reason, without_random_name(field, message)) for field, reason, message in verdict["causes"]}


def test_the_recording_has_all_kinds_of_findings_and_slices_without_any() -> None:
    reasons = {reason for verdict in VERDICTS for _, reason, _ in verdict["causes"]}
    assert len(reasons) == 7
    assert sum(not verdict["causes"] for verdict in VERDICTS) >= 10


@given(st.integers(0, 2**32))
def test_rules_never_raise_and_name_a_field_of_the_slice(seed: int) -> None:
    for error in slice_rules.problems(slice_of(seed)):
        assert error.field.partition(".")[0] in ("metadata", "spec")
        assert str(error).startswith(error.field)


@pytest.mark.parametrize(
    ("device", "field"),
    [
        (Device("a", attributes={"x": DeviceAttribute(int_=2**63)}), "spec.devices[0].attributes[x]"),
        (Device("a", attributes={"x": DeviceAttribute(ints=[-(2**63) - 1])}), "spec.devices[0].attributes[x]"),
        (Device("a", capacity={"memory": DeviceCapacity("80 Gi")}), "spec.devices[0].capacity[memory].value"),
        (
            Device("a", consumes_counters=[DeviceCounterConsumption("s", {"c": Counter("x")})]),
            "spec.devices[0].consumesCounters[0].counters[c].value",
        ),
    ],
)
def test_what_the_api_server_cannot_read_is_named_alone(device: Device, field: str) -> None:
    one = slices.plan("Bad_Driver", "node-a", "", slices.layout(Pool((device,))), ()).create[0]
    assert [error.field for error in slice_rules.problems(one)] == [field]


def consumer(name: str, counter_set: str = "set", counter: str = "memory") -> Device:
    return Device(name, consumes_counters=[DeviceCounterConsumption(counter_set, {counter: Counter("1")})])


SET = CounterSet("set", {"memory": Counter("8Gi")})


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (Pool((Device("a"), Device("a"))), 'pool node-a: spec.devices[1]: Duplicate value: "a"; found duplicate device "a"'),
        (Pool((*(Device(f"a{number}") for number in range(64)), Device("a0"))), 'pool node-a: found duplicate device "a0"'),
        (Pool(counter_sets=(*(CounterSet(f"set-{number}", SET.counters) for number in range(7)), SET, SET)), 'found duplicate counter set "set"'),
        (Pool((consumer("a"),)), 'pool node-a: counter set "set" referenced by device "a" not found'),
        (Pool((consumer("a", counter="cpu"),), (SET,)), 'pool node-a: counter "cpu" referenced by device "a" not found in counter set "set"'),
        (Pool(tuple(Device(f"A{number}") for number in range(7))), "(and 2 more)"),
    ],
)
def test_a_pool_is_refused_for_what_it_is_as_a_whole(pool: Pool, text: str) -> None:
    created = slices.plan("gpu.example.com", "node-a", "node-a", slices.layout(pool), ()).create
    with pytest.raises(SliceError) as caught:
        slice_rules.check("node-a", created)
    assert text in str(caught.value)


def test_a_pool_with_counters_across_slices_is_fine() -> None:
    sets = tuple(CounterSet(f"set-{number}", SET.counters) for number in range(20))
    devices = tuple(consumer(f"a-{number}", f"set-{number % 20}") for number in range(200))
    slice_rules.check("node-a", slices.plan("gpu.example.com", "node-a", "node-a", slices.layout(Pool(devices, sets)), ()).create)
