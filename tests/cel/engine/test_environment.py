"""Environments: versions, gates, and what the API server answers to a selector."""

from __future__ import annotations

import pytest

from dra_driver.cel import CompileError, Device, Environment, EvaluationError

D = "device.attributes['d']"


def test_stored_and_new_expressions_differ_where_kubernetes_says() -> None:
    stored, new = Environment(), Environment(stored=False)
    assert stored.compile(f"{D}.a").result_type == "dyn"
    assert new.compile(f"{D}.a").result_type == "google.protobuf.Any"
    stored.compile(f"{D}.a.exists(x, x == 1)")
    with pytest.raises(CompileError, match="expression of type 'any' cannot be range of a comprehension"):
        new.compile(f"{D}.a.exists(x, x == 1)")
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        new.compile(f"{D}.a.includes(1)")
    Environment(stored=False, gates={"DRAListTypeAttributes": True}).compile(f"{D}.a.includes(1)")
    with pytest.raises(CompileError, match="undefined field 'allowMultipleAllocations'"):
        Environment(stored=False, gates={"DRAConsumableCapacity": False}).compile("device.allowMultipleAllocations")


def test_older_versions_know_less() -> None:
    with pytest.raises(CompileError, match="undefined field 'allowMultipleAllocations'"):
        Environment("1.34", stored=False).compile("device.allowMultipleAllocations")
    with pytest.raises(CompileError, match="undeclared reference to 'distinct'"):
        Environment("1.34", stored=False).compile("[1].distinct() == [1]")
    Environment("1.36", stored=False).compile("[1].distinct() == [1] && device.allowMultipleAllocations")


@pytest.mark.parametrize("version", ["1.33", "1.38", "2.0", "x", ""])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(ValueError, match=r"known are the versions 1\.34 to 1\.37"):
        Environment(version)


def test_unknown_gates_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown feature gate 'DRANope'"):
        Environment(gates={"DRANope": True})


UNDECLARED = (
    'Invalid value: "nope == \\"x\\"": compilation failed: ERROR: <input>:1:1: '
    "undeclared reference to 'nope' (in container '')\n | nope == \"x\"\n | ^"
)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("device.driver == 'x'", None),
        ("'" + "x" * 10239 + "'", "Too long: may not be more than 10240 bytes"),
        ("'" + "é" * 5120 + "'", "Too long: may not be more than 10240 bytes"),
        ("size('a')", "Invalid value: \"size('a')\": must evaluate to bool or the unknown type, not int"),
        (
            'nope == "x"',
            UNDECLARED,
        ),
        ("int('x') == 1", "Internal error: program instantiation failed: type conversion error from 'string' to 'int'"),
        (f"type({D}.a) == string", "Forbidden: too complex, exceeds cost limit"),
    ],
)
def test_admission(text: str, finding: str | None) -> None:
    assert [str(found) for found in Environment(stored=False).admit(text)] == ([] if finding is None else [finding])


def test_the_error_of_a_missing_key_is_shown_with_a_hint() -> None:
    with pytest.raises(EvaluationError) as error:
        Environment().compile(f"{D}.a == 1").matches(Device.from_api("d", {}))
    assert str(error.value) == "no such key: a"
    assert error.value.shown == (
        "no such key: a. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
    )


def test_a_device_with_an_attribute_that_is_no_version_fails_every_selector() -> None:
    device = Device.from_api("d", {"attributes": {"v": {"version": "1.02.3"}}})
    with pytest.raises(EvaluationError) as error:
        Environment().compile("true").matches(device)
    assert str(error.value) == 'attribute v: parse semantic version: Minor number must not contain leading zeroes "02"'


def test_lists_are_attributes_from_1_36_on_where_the_gate_is_on() -> None:
    device = Device.from_api("d", {"attributes": {"names": {"strings": ["x"]}, "v": {"versions": ["bad"]}}})
    lists = Device.from_api("d", {"attributes": {"names": {"strings": ["x"]}}})
    text = f"{D}.names[0] == 'x'"
    assert Environment().compile(text).matches(lists)
    assert Environment("1.36", gates={"DRAListTypeAttributes": True}).compile(text).matches(lists)
    for environment in (Environment("1.36"), Environment("1.35", gates={"DRAListTypeAttributes": True})):
        selector = environment.compile(text)
        assert str(selector.run(lists).error) == selector.explain(lists).error == "attribute names: unsupported attribute value"
        assert str(selector.run(device).error) == "attribute names: unsupported attribute value"
    assert str(Environment().compile(text).run(device).error) == "attribute v: parse semantic version: No Major.Minor.Patch elements found"


def test_a_costly_selector_is_cancelled_as_in_the_scheduler() -> None:
    over = "lists.range(200).all(a, lists.range(200).all(b, lists.range(200).all(c, a + b + c >= 0)))"
    selector = Environment().compile(over)
    assert selector.max_cost > 1_000_000
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
        selector.matches(Device.from_api("d", {}))
