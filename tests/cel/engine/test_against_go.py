"""Differential test: fresh random selectors, in our engine and in Kubernetes' own code.

Needs Go and the modules of e2e/cluster/tools in Go's cache. CEL_EXPRESSIONS sets the number, CEL_SEED the seed, CEL_MESSAGES the part of protobuf
messages, CEL_ORACLE a built oracle, CEL_KUBERNETES its version.
Allowed differences: only the order of Go's maps, which numbers type variables as well, and the spaces that protobuf prints as its binary
likes. Where Go's repeated evaluations differ among themselves, nothing is compared; where they do not, its answer must be ours, or ours for some
order of the device's maps (of many keys, few orders are sorted).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cel import CompileError, Device, Environment, EvaluationError
from tests.cel.engine.expressions import DEVICES, Generator

TOOLS = Path(__file__).parents[3] / "e2e" / "cluster" / "tools"
COUNT = int(os.environ.get("CEL_EXPRESSIONS", "20000"))
SEED = int(os.environ.get("CEL_SEED", "20260101"))
MESSAGES = float(os.environ.get("CEL_MESSAGES", "0.02"))
KUBERNETES = os.environ.get("CEL_KUBERNETES", "1.37")
REPEAT = 12
REPEAT_AT_DOUBT = 1000
BATCH = 5000
_LIKED_SPACES = re.compile(r"[ \u00a0]+")
_TYPE_VARIABLE = re.compile(r"_var\d+")
LIST, CAPACITY = "DRAListTypeAttributes", "DRAConsumableCapacity"
ENVIRONMENTS: list[tuple[bool, dict[str, bool]]] = [
    (True, {}),
    (False, {}),
    (False, {LIST: True}),
    (False, {CAPACITY: False}),
    (False, {CAPACITY: False, LIST: True}),
]


def devices_of(kubernetes: str) -> list[dict[str, Any]]:
    """Old versions refuse devices with list attributes, whatever the expression: one is enough."""
    if kubernetes == "1.37":
        return DEVICES
    scalars = {name: value for name, value in DEVICES[0]["attributes"].items() if next(iter(value)) in ("string", "int", "bool", "version")}
    refused = {"driver": "d", "attributes": {"a": {"int": 1}, "names": {"strings": ["x"]}}, "capacity": {}}
    return [{**DEVICES[0], "attributes": scalars}, *DEVICES[1:], refused]


ASKED = devices_of(KUBERNETES)
COMPILERS = [Environment(KUBERNETES, stored=stored, gates=gates) for stored, gates in ENVIRONMENTS]
DEVICE_OBJECTS = [Device.from_api(str(device["driver"]), device) for device in ASKED]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if built := os.environ.get("CEL_ORACLE"):
        return Path(built)
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    binary = tmp_path_factory.mktemp("oracle") / "celoracle"
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOPROXY": "off"}
    done = subprocess.run([go, "build", "-o", binary, "./cmd/celoracle"], cwd=TOOLS, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the oracle cannot be built without a download: {done.stderr[-300:]}")
    return binary


def batches() -> Iterator[list[tuple[int, str]]]:
    generator = Generator(SEED, messages=MESSAGES)
    cases = [(0 if number % 4 < 3 else 1 + number // 4 % 4, generator.selector()) for number in range(COUNT)]
    if KUBERNETES != "1.37":  # an absurd range makes old versions allocate until they are killed
        cases = [case for case in cases if "lists.range" not in case[1]]
    cases.sort(key=lambda case: case[0])
    for start in range(0, len(cases), BATCH):
        yield cases[start : start + BATCH]


def ask(oracle: Path, cases: list[tuple[int, str]], repeat: int) -> list[dict[str, Any]]:
    lines = [json.dumps({"devices": ASKED})]
    for number, expression in cases:
        stored, gates = ENVIRONMENTS[number]
        request = {"expression": expression, "new": not stored, "repeat": repeat}
        request |= {"consumableCapacity": gates.get(CAPACITY, KUBERNETES >= "1.36"), "listTypeAttributes": gates.get(LIST, False)}
        lines.append(json.dumps(request))
    done = subprocess.run([oracle], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def answer(environment: Environment, expression: str, devices: list[Device], go: dict[str, Any]) -> dict[str, Any]:
    """Ours, and the parts of Go's that do not vary."""
    try:
        selector = environment.compile(expression)
    except CompileError as error:
        if "panic" in go:
            return {"panic": go["panic"]}
        return {"compileError": str(error)}
    results = []
    for device, theirs in zip(devices, go.get("results", [{} for _ in devices]), strict=True):
        outcome = selector.run(device)
        ours: dict[str, Any] = {} if outcome.cost is None else {"cost": outcome.cost}
        if outcome.error is None:
            ours["match"] = outcome.match
        else:
            ours["error"] = str(outcome.error)
        check_fast(selector.matches, device, ours)
        if theirs.pop("varies", False):
            ours.clear()
            theirs.clear()
        if theirs.pop("costVaries", False):
            del theirs["cost"], ours["cost"]
        results.append(ours)
    return {"type": selector.result_type, "maxCost": selector.max_cost, "results": results}


def check_fast(matches: Any, device: Device, exact: dict[str, Any]) -> None:
    try:
        fast = {"match": matches(device)}
    except EvaluationError as error:
        fast = {"error": str(error)}
    assert fast == {key: value for key, value in exact.items() if key != "cost"}


def _plain(answered: dict[str, Any]) -> dict[str, Any]:
    if "compileError" in answered:
        return {"compileError": _TYPE_VARIABLE.sub("_var", answered["compileError"])}
    return {**answered, "results": [_plain_result(result) for result in answered.get("results", [])]}


def _plain_result(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "error": _LIKED_SPACES.sub(" ", result["error"])} if "error" in result else result


def adopt_orders(environment: Environment, expression: str, ours: dict[str, Any], go: dict[str, Any]) -> None:
    """Ours becomes Go's result of a device where some order of the device's maps gives that."""
    for number, (mine, theirs) in enumerate(zip(ours.get("results", []), go.get("results", []), strict=True)):
        if mine == theirs:
            continue
        for device in shuffled(number):
            again = answer(environment, expression, [device], {"results": [dict(theirs)]})
            if again["results"] == [theirs]:
                mine.clear()
                mine.update(theirs)
                break


def shuffled(number: int) -> Iterator[Device]:
    chance = random.Random(number)
    known, raw = DEVICE_OBJECTS[number], ASKED[number]
    attributes = [(f"{domain}/{name}", value) for domain, values in known.attributes.items() for name, value in values.items()]
    capacity = list(raw.get("capacity", {}).items())
    for _ in range(30):
        chance.shuffle(attributes)
        chance.shuffle(capacity)
        yield Device(known.driver, dict(attributes), dict(capacity), known.allow_multiple_allocations)


def differences(oracle: Path, cases: list[tuple[int, str]], repeat: int) -> tuple[list[tuple[int, str]], list[dict[str, Any]], int]:
    """The cases that differ, what differs, and how many compiled."""
    different: list[tuple[int, str]] = []
    shown = []
    compiled = 0
    for case, go in zip(cases, ask(oracle, cases, repeat), strict=True):
        number, expression = case
        ours = answer(COMPILERS[number], expression, DEVICE_OBJECTS, go)
        compiled += "type" in ours
        if repeat == REPEAT_AT_DOUBT:
            adopt_orders(COMPILERS[number], expression, ours, go)
        if _plain(ours) != _plain(go):
            different.append(case)
            shown.append({"environment": ENVIRONMENTS[number], "expression": expression, "go": go, "ours": ours})
    return different, shown, compiled


@pytest.mark.timeout(max(3600, COUNT // 25))
def test_random_selectors_are_judged_alike(oracle: Path) -> None:
    doubtful: list[tuple[int, str]] = []
    compiled = 0
    for cases in batches():
        found, _, count = differences(oracle, cases, REPEAT)
        doubtful += found
        compiled += count
    _, shown, _ = differences(oracle, doubtful, REPEAT_AT_DOUBT)
    assert not shown, json.dumps(shown[:5], indent=1, ensure_ascii=False)
    assert compiled > COUNT * 0.7
