"""Every vector, exactly: outcome, match, type, static and actual cost, error texts. Syntax errors are compared as a class only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cel import CompileError, Device, Environment, EvaluationError

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = json.loads((VECTORS / "cel_cases.json").read_text(encoding="utf-8"))
FACTS = json.loads((VECTORS / "cel_facts.json").read_text(encoding="utf-8"))
MESSAGES = json.loads((VECTORS / "messages.json").read_text(encoding="utf-8"))
OLDER = json.loads((VECTORS / "older.json").read_text(encoding="utf-8"))
SORTED = json.loads((VECTORS / "sorted.json").read_text(encoding="utf-8"))
STORED, NEW = Environment(), Environment(stored=False)
DEVICES = [Device.from_api(device["driver"], device) for device in CASES["devices"]]


def outcome(environment: Environment, expression: str, devices: list[Device]) -> dict[str, Any]:
    """In the form of the vectors."""
    try:
        selector = environment.compile(expression)
    except CompileError as error:
        return {"compileError": str(error)}
    results = []
    for device in devices:
        found = selector.run(device)
        cost = {} if found.cost is None else {"cost": found.cost}
        results.append({"match": found.match, **cost} if found.error is None else {"error": str(found.error), **cost})
    return {"type": selector.result_type, "maxCost": selector.max_cost, "results": results}


def comparable(vector: dict[str, Any], *, costs: bool = True) -> dict[str, Any]:
    if "Syntax error" in vector.get("compileError", ""):
        return {"compileError": "syntax"}
    if costs or "results" not in vector:
        return vector
    return {**vector, "results": [{key: value for key, value in result.items() if key != "cost"} for result in vector["results"]]}


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: repr(case["expression"])[:60])
def test_case(case: dict[str, Any]) -> None:
    costs = not case.get("actual_cost_varies", False)
    stored = outcome(STORED, case["expression"], DEVICES)
    assert comparable(stored, costs=costs) == comparable(case["stored"], costs=costs)
    new = outcome(NEW, case["expression"], DEVICES)
    assert comparable(new, costs=costs) == comparable(case.get("new_default_gates", case["stored"]), costs=costs)


@pytest.mark.parametrize("case", MESSAGES["cases"], ids=lambda case: repr(case["expression"])[:60])
def test_message(case: dict[str, Any]) -> None:
    devices = [Device.from_api(device["driver"], device) for device in MESSAGES["devices"]]
    assert comparable(outcome(STORED, case["expression"], devices)) == comparable(case["stored"])


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
@pytest.mark.parametrize("case", OLDER["cases"], ids=lambda case: repr(case["expression"])[:60])
def test_older_versions_answer_as_they_did(case: dict[str, Any], version: str) -> None:
    devices = [Device.from_api(device["driver"], device) for device in OLDER["devices"]]
    environment = Environment(version)
    assert outcome(environment, case["expression"], devices) == case["stored"]
    if "results" in case["stored"]:
        selector = environment.compile(case["expression"])
        with pytest.raises(EvaluationError, match="attribute names: unsupported attribute value"):
            selector.matches(devices[1])


@pytest.mark.parametrize("case", SORTED["cases"], ids=lambda case: f"{len(case['keys'])} keys")
def test_elements_with_equal_keys_are_ordered_as_go_does(case: dict[str, Any]) -> None:
    selector = STORED.compile(f"lists.range({len(case['keys'])}).sortBy(i, {case['keys']}[i]) == {case['order']}")
    assert selector.matches(DEVICES[0])


def test_a_list_too_long_to_be_sorted_is_not() -> None:
    found = STORED.compile("(lists.range(400000) + lists.range(400000)).sort()[0] == 0").run(DEVICES[0])
    assert str(found.error) == "operation cancelled: actual cost limit exceeded"


def check_fact(case: dict[str, Any], wanted: dict[str, Any], gates: dict[str, bool]) -> None:
    environment = Environment(stored=case["environment"] == "stored", gates=gates)
    device = Device.from_api(case["device"]["driver"], case["device"])
    found = outcome(environment, case["expression"], [device])
    if "compile_error" in wanted:
        assert comparable(found) == comparable({"compileError": wanted["compile_error"]})
        return
    assert (found["type"], found["maxCost"]) == (wanted["result_type"], wanted["estimated_max_cost"])
    result = found["results"][0]
    assert result.get("match") == wanted.get("match")
    assert result.get("error") == wanted.get("runtime_error")
    if "actual_cost" in wanted and "exists" not in case["expression"]:
        assert result["cost"] == wanted["actual_cost"]


@pytest.mark.parametrize("case", FACTS["cases"], ids=lambda case: case["id"])
@pytest.mark.timeout(600)
def test_fact(case: dict[str, Any]) -> None:
    wanted = case.get("measured_1_37_line", case["measured_2026_07_01_snapshot"])
    for list_attributes in case["gates"]["DRAListTypeAttributes"]:
        check_fact(case, wanted, {"DRAConsumableCapacity": case["gates"]["DRAConsumableCapacity"], "DRAListTypeAttributes": list_attributes})


@pytest.mark.parametrize("case", FACTS["feature_matrix"], ids=lambda case: f"{case['environment']} {case['feature']} {list(case['gates'].values())}")
def test_feature(case: dict[str, Any]) -> None:
    check_fact(case, case.get("line_1_37", case["snapshot"]), case["gates"])


@pytest.mark.parametrize("case", FACTS["interrupt_cases"], ids=lambda case: case["context"])
def test_an_interrupt_stops_a_long_evaluation(case: dict[str, Any]) -> None:
    device = Device("dra.example.com", {f"attr{number}": number for number in range(1000)}, {}, None)
    selector = STORED.compile(case["expression"])
    assert str(selector.run(device, lambda: True).error) == "operation interrupted"
    match, error, _ = selector.run(device)
    assert match is True
    assert error is None
