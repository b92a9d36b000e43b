"""Quantity against results of the Go code (quantity.json), and its laws."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import DraError, ParseError
from dra_driver.k8s.quantity import Quantity

GO = json.loads((Path(__file__).parent / "quantity.json").read_text(encoding="utf-8"))


def facts(quantity: Quantity) -> dict[str, Any]:
    value = quantity.as_float()
    return {
        "string": str(quantity),
        "integer": quantity.as_integer() if quantity.is_integer() else None,
        "float": "nan" if math.isnan(value) else value.hex(),
    }


def expected(go: dict[str, Any]) -> dict[str, Any]:
    return {key: go[key] for key in ("string", "integer", "float")}


@pytest.mark.parametrize("case", GO["parse"], ids=lambda case: case["text"])
def test_a_text_is_read_and_written_as_by_go(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ParseError) as error:
            Quantity.parse(case["text"])
        assert str(error.value) == case["error"]
    else:
        assert facts(Quantity.parse(case["text"])) == expected(case)


@pytest.mark.parametrize("case", GO["parse"], ids=lambda case: case["text"])
def test_the_canonical_form_is_gos(case: dict[str, Any]) -> None:
    if "error" not in case:
        recomputed = Quantity.parse(case["text"]).add(0)
        if recomputed.sign():
            assert str(recomputed) == case.get("canonical", case["string"])


@pytest.mark.parametrize("case", GO["pairs"], ids=lambda case: f"{case['left']} {case['right']}")
def test_two_quantities_compare_and_add_as_in_go(case: dict[str, Any]) -> None:
    left, right = Quantity.parse(case["left"]), Quantity.parse(case["right"])
    assert left.compare(right) == case["compare"]
    assert ((left < right), (left <= right), (left == right), (left >= right), (left > right)) == (
        case["compare"] < 0,
        case["compare"] <= 0,
        case["compare"] == 0,
        case["compare"] >= 0,
        case["compare"] > 0,
    )
    assert facts(left.add(right)) == expected(case["add"])
    assert facts(left.sub(right)) == expected(case["sub"])


@pytest.mark.parametrize("case", GO["integers"], ids=lambda case: f"{case['left']} {case['right']}")
def test_an_integer_is_added_as_in_go(case: dict[str, Any]) -> None:
    left = Quantity.parse(case["left"])
    assert facts(left.add(case["right"])) == expected(case["add"])
    assert facts(left.sub(case["right"])) == expected(case["sub"])


@pytest.mark.parametrize("text", ["1000E", "-2000E", "1000000E", "999999999999999E"])
def test_beyond_the_last_decimal_suffix_the_text_keeps_the_value(text: str) -> None:
    """Go writes "1" for 1000E."""
    quantity = Quantity.parse(text)
    assert str(quantity) == text
    assert Quantity.parse(str(quantity)) == quantity


def test_beyond_the_last_binary_suffix_the_text_keeps_the_value() -> None:
    total = Quantity.from_bytes(2**62).add(Quantity.from_bytes(2**62))
    for _ in range(7):
        total = total.add(total)
    assert str(total) == "1024Ei"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (80 * 2**30, "80Gi"),
        (85520809984, "81559Mi"),
        (1025, "1025"),
        (-(2**40), "-1Ti"),
    ],
)
def test_bytes_are_written_with_binary_suffixes(count: int, text: str) -> None:
    quantity = Quantity.from_bytes(count)
    assert str(quantity) == text
    assert quantity.as_integer() == count


def test_equal_values_are_one_key_of_a_dictionary() -> None:
    texts = ["1Gi", "1024Mi", "1073741824", "1073741824000m", "1073741824e0", "1.073741824G"]
    assert len({Quantity.parse(text) for text in texts}) == 1


@pytest.mark.parametrize("gap", ["1e2000000000", "1234567890123456789e2000000000"])
def test_an_absurd_exponent_costs_neither_time_nor_memory(gap: str) -> None:
    huge, one = Quantity.parse(gap), Quantity.parse("1")
    assert huge > one
    assert huge.as_float() == math.inf
    assert not huge.is_integer()
    assert Quantity.parse("1e-2000000000") == Quantity.parse("1n")
    with pytest.raises(OverflowError, match="cannot add quantities"):
        huge.add(one)


def test_more_digits_than_int_reads_are_fine() -> None:
    long = "9" * 5000
    assert str(Quantity.parse(long)) == long
    assert Quantity.parse(long) > Quantity.parse("9" * 4999)


def test_a_whole_number_that_go_keeps_big_is_no_integer() -> None:
    with pytest.raises(ParseError, match="cannot convert value to integer"):
        Quantity.parse("1Pi").as_integer()


def test_a_bad_text_is_a_value_error_of_our_tree() -> None:
    with pytest.raises(ValueError, match="regular expression") as error:
        Quantity.parse("80 Gi")
    assert isinstance(error.value, DraError)


@pytest.mark.parametrize("other", [1, "1", 1.0, None])
def test_nothing_else_is_equal_or_ordered(other: object) -> None:
    assert Quantity.parse("1") != other
    with pytest.raises(TypeError):
        assert Quantity.parse("1") < other


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-5", "e+30"]
quantities = st.builds(
    lambda sign, whole, fraction, suffix: Quantity.parse(f"{sign}{whole}{fraction}{suffix}"),
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**21),
    st.one_of(st.just(""), st.integers(0, 10**12).map(lambda n: f".{n}")),
    st.sampled_from(SUFFIXES),
)


@given(quantities)
def test_what_is_written_reads_back(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity


@given(quantities, quantities, quantities)
def test_the_order_is_total(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert a.compare(b) == -b.compare(a)
    low, middle, high = sorted([a, b, c])
    assert low <= middle <= high
    assert low <= high
    assert (a == b) == (a.compare(b) == 0)
    assert a != b or hash(a) == hash(b)


@given(quantities, quantities)
def test_add_and_sub_undo_each_other(a: Quantity, b: Quantity) -> None:
    assert a.add(b).sub(b) == a
    assert a.sub(b).add(b) == a
    assert a.add(b) == b.add(a)
    assert a.sub(a).sign() == 0


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_survive(count: int) -> None:
    assert Quantity.from_bytes(count).as_integer() == count
    assert Quantity.parse("0").add(count) == Quantity.from_bytes(count)
