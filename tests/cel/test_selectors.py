"""What common selectors answer, on the two devices of the vectors; every expectation is the Go code's."""

from __future__ import annotations

import doctest
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import dra_driver.cel
from dra_driver.cel import CompileError, Device, Environment, EvaluationError
from dra_driver.errors import ParseError

HERE = Path(__file__).parent / "vectors"
DEVICES = json.loads((HERE / "cel_cases.json").read_text(encoding="utf-8"))["devices"]
COMMON = json.loads((HERE / "common_selectors.json").read_text(encoding="utf-8"))["cases"]


def device_of(vector: dict[str, Any]) -> Device:
    capacity = {name: {"value": value} for name, value in vector["capacity"].items()}
    return Device.from_api(vector["driver"], {**vector, "capacity": capacity})


@pytest.mark.parametrize("case", COMMON, ids=lambda case: case["expression"])
def test_a_common_selector_answers_as_in_the_scheduler(case: dict[str, Any]) -> None:
    selector = Environment().compile(case["expression"])
    for vector, go in zip(DEVICES, case["results"], strict=True):
        device = device_of(vector)
        if "match" in go:
            assert selector.matches(device) is go["match"]
        else:
            with pytest.raises(EvaluationError) as error:
                selector.matches(device)
            assert str(error.value) == go["error"]


@pytest.mark.parametrize(
    ("expression", "position", "message"),
    [
        ("device.driver == ", "1:18", "Syntax error"),
        ("device.driver ==\n  ?", "2:3", "Syntax error"),
        ("device.drvier == 'x'", "1:7", "undefined field 'drvier'"),
        ("dev.driver == 'x'", "1:1", "undeclared reference to 'dev' (in container '')"),
        ("quantitty('1') == 1", "1:10", "undeclared reference to 'quantitty' (in container '')"),
        ("device.driver == '.?' && nope", "1:26", "undeclared reference to 'nope' (in container '')"),
    ],
)
def test_a_mistake_is_shown_with_its_position(expression: str, position: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        Environment().compile(expression)
    assert str(error.value).startswith(f"compilation failed: ERROR: <input>:{position}: {message}")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"v": {"version": "1.2"}}, "attribute v: parse semantic version: No Major.Minor.Patch elements found"),
        ({"v": {"version": "575.57.08"}}, 'attribute v: parse semantic version: Patch number must not contain leading zeroes "08"'),
        ({"v": {}}, "attribute v: unsupported attribute value"),
    ],
)
def test_a_bad_attribute_fails_even_an_expression_that_does_not_read_it(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(EvaluationError) as error:
        Environment().compile("true").matches(Device.from_api("d", {"attributes": attributes}))
    assert str(error.value) == message


def test_a_capacity_that_is_no_quantity_is_named() -> None:
    with pytest.raises(ParseError, match=r"capacity memory of a device of driver gpu.nvidia.com: '80 GB': quantities must match"):
        Device.from_api("gpu.nvidia.com", {"capacity": {"memory": {"value": "80 GB"}}})


def test_a_name_belongs_to_the_domain_before_its_first_slash_or_to_the_driver() -> None:
    device = Device.from_api("d", {"attributes": {"a": {"int": 1}, "x/a": {"int": 2}, "x/b/c": {"int": 3}}, "capacity": {"x/m": {"value": "1"}}})
    assert device.attributes == {"d": {"a": 1}, "x": {"a": 2, "b/c": 3}}
    assert list(device.capacity) == ["x"]


def test_a_value_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(EvaluationError, match="CEL result of type int could not be converted to bool"):
        Environment().compile("device.attributes['d'].a").matches(Device.from_api("d", {"attributes": {"a": {"int": 1}}}))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    device = Device.from_api("d", {"attributes": {"s": {"string": "a"}, "i": {"int": 1}}})
    for expression in ("device.attributes['d'].s.matches('(' + '')", "device.attributes['d'].i.exists(x, x)", "[1].all(x, device.attributes['d'].s)"):
        with pytest.raises(EvaluationError):
            Environment().compile(expression).matches(device)
    assert capfd.readouterr() == ("", "")


def test_threads_share_a_selector() -> None:
    selector = Environment().compile("[1, 2, 3].exists(x, x == device.attributes['d'].i)")
    devices = {number: Device.from_api("d", {"attributes": {"i": {"int": number}}}) for number in range(8)}
    wrong: list[int] = []

    def evaluate(number: int) -> None:
        wrong.extend(number for _ in range(20) if selector.matches(devices[number]) != (1 <= number <= 3))

    threads = [threading.Thread(target=evaluate, args=(number,)) for number in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_example_of_the_package_runs() -> None:
    assert doctest.testmod(dra_driver.cel).failed == 0
