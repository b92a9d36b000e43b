"""Semver against results of the Go code (semver.json), and its laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ParseError
from dra_driver.k8s.semver import Semver

GO = json.loads((Path(__file__).parent / "semver.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("parse", "case"),
    [(Semver.parse, case) for case in GO["parse"]] + [(Semver.parse_normalized, case) for case in GO["normalized"]],
    ids=lambda value: repr(value["text"]) if isinstance(value, dict) else value.__name__,
)
def test_a_text_is_read_and_written_as_by_go(parse: Any, case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ParseError) as error:
            parse(case["text"])
        assert str(error.value) == case["error"]
    else:
        assert str(parse(case["text"])) == case["string"]


@pytest.mark.parametrize("case", GO["compare"], ids=lambda case: f"{case['left']} {case['right']}")
def test_two_versions_compare_as_in_go(case: dict[str, Any]) -> None:
    left, right, order = Semver.parse(case["left"]), Semver.parse(case["right"]), case["compare"]
    assert left.compare(right) == order
    assert (left < right, left <= right, left == right, left >= right, left > right) == (order < 0, order <= 0, order == 0, order >= 0, order > 0)
    assert order or hash(left) == hash(right)


def test_the_parts_are_numbers() -> None:
    version = Semver.parse("575.57.8-rc.1+build")
    assert (version.major, version.minor, version.patch) == (575, 57, 8)


def test_a_driver_version_is_read_only_normalized() -> None:
    with pytest.raises(ParseError, match='Patch number must not contain leading zeroes "08"'):
        Semver.parse("575.57.08")
    assert Semver.parse_normalized("575.57.08") == Semver.parse("575.57.8")


@pytest.mark.parametrize("other", [1, "1.0.0", None])
def test_nothing_else_is_equal_or_ordered(other: object) -> None:
    assert Semver.parse("1.0.0") != other
    with pytest.raises(TypeError):
        assert Semver.parse("1.0.0") < other


identifiers = st.one_of(st.integers(0, 2**64 - 1).map(str), st.from_regex(r"\A[0-9]{0,3}[A-Za-z-][0-9A-Za-z-]{0,5}\Z"))
versions = st.builds(
    lambda numbers, prerelease, build: Semver.parse(
        ".".join(map(str, numbers)) + ("-" + ".".join(prerelease) if prerelease else "") + ("+" + ".".join(build) if build else "")
    ),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.lists(identifiers, max_size=3),
    st.lists(identifiers, max_size=2),
)


@given(versions)
def test_what_is_written_reads_back(version: Semver) -> None:
    again = Semver.parse(str(version))
    assert again == version
    assert str(again) == str(version)
    assert Semver.parse_normalized(f"v{version}") == version


@given(versions, versions, versions)
def test_the_order_is_total(a: Semver, b: Semver, c: Semver) -> None:
    assert a.compare(b) == -b.compare(a)
    low, middle, high = sorted([a, b, c])
    assert low <= middle <= high
    assert low <= high
    assert (a == b) == (a.compare(b) == 0)
    assert a != b or hash(a) == hash(b)
