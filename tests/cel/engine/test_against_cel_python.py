"""Cross-check with cel-python, written by others from the language's specification: the verdicts agree on the language that both have.

Outside it lie the optional syntax, two-variable macros, `cel.bind`, Kubernetes' libraries beyond Quantity and Semver, comparisons across types,
which cel-python gets wrong, methods of concatenated strings, which it does not find, and the texts of errors.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from dra_driver.cel import Device, Environment, EvaluationError
from tests.cel.cel_python import evaluate

COUNT = int(os.environ.get("CEL_CROSSCHECK", "1500"))
A, C = "device.attributes['gpu.nvidia.com']", "device.capacity['gpu.nvidia.com']"
DEVICES = [
    Device.from_api(
        "gpu.nvidia.com",
        {
            "attributes": {
                "type": {"string": "gpu"},
                "name": {"string": "NVIDIA H100"},
                "index": {"int": 3},
                "ecc": {"bool": True},
                "driverVersion": {"version": "550.54.15"},
                "dra.net/numa": {"int": 1},
            },
            "capacity": {"memory": {"value": "80Gi"}, "sms": {"value": "132"}},
        },
    ),
    Device.from_api("gpu.nvidia.com", {"attributes": {"type": {"string": "mig"}, "index": {"int": -7}}, "capacity": {}}),
]


class Common(random.Random):
    """Random selectors of the common subset."""

    def of(self, kind: str, depth: int) -> str:
        if depth <= 0:
            return self.choice(LEAVES[kind])
        made: Callable[[Common, int], str] = self.choice(MAKERS[kind])
        return made(self, depth - 1)


LEAVES = {
    "bool": ["true", "false", f"{A}.ecc", f"has({A}.ecc)", f"has({A}.name)", "device.driver == 'gpu.nvidia.com'"],
    "int": ["0", "1", "-3", "7", f"{A}.index", "device.attributes['dra.net'].numa", f"size({A}.type)", f"{A}.driverVersion.major()"],
    "string": ["'gpu'", "'H100'", "''", f"{A}.type", f"{A}.name", "device.driver"],
    "text": ["'gpu'", f"{A}.type", f"{A}.name", "device.driver"],
    "quantity": ["quantity('40Gi')", "quantity('1500m')", f"{C}.memory", f"{C}.sms"],
    "version": ["semver('550.54.15')", "semver('1.2.3-rc.1')", f"{A}.driverVersion"],
    "ints": ["[1, 2, 3]", f"[{A}.index]", "[-7, 3]"],
    "strings": ["['gpu', 'mig']", f"[{A}.type, {A}.name]"],
}
MAKERS: dict[str, list[Callable[[Common, int], str]]] = {
    "bool": [
        lambda r, d: f"({r.of('bool', d)} {r.choice(['&&', '||'])} {r.of('bool', d)})",
        lambda r, d: f"({r.of('bool', d)} ? {r.of('bool', d)} : {r.of('bool', d)})",
        lambda r, d: f"!({r.of('bool', d)})",
        lambda r, d: f"({r.of('int', d)} {r.choice(['==', '!=', '<', '<=', '>', '>='])} {r.of('int', d)})",
        lambda r, d: f"({r.of('string', d)} {r.choice(['==', '!=', '<', '>'])} {r.of('string', d)})",
        lambda r, d: f"({r.of('string', d)} in {r.of('strings', d)})",
        lambda r, d: f"({r.of('int', d)} in {r.of('ints', d)})",
        lambda r, d: f"({r.of('text', d)}).{r.choice(['contains', 'startsWith', 'endsWith'])}({r.of('string', d)})",
        lambda r, d: f"({r.of('text', d)}).matches({r.choice(['g.u', '^NV', '[0-9]+$'])!r})",
        lambda r, d: f"({r.of('quantity', d)}).{r.choice(['isGreaterThan', 'isLessThan'])}({r.of('quantity', d)})",
        lambda r, d: f"({r.of('version', d)}).{r.choice(['isGreaterThan', 'isLessThan'])}({r.of('version', d)})",
        lambda r, d: f"({r.of('quantity', d)}).compareTo({r.of('quantity', d)}) >= 0",
        lambda r, d: f"({r.of('ints', d)}).{r.choice(['all', 'exists'])}(x, x {r.choice(['<', '!='])} {r.of('int', d)})",
        lambda r, d: f"({r.of('strings', d)}).{r.choice(['all', 'exists', 'exists_one'])}(y, y.contains({r.of('string', d)}))",
    ],
    "int": [
        lambda r, d: f"({r.of('int', d)} {r.choice(['+', '-', '*', '/', '%'])} {r.of('int', d)})",
        lambda r, d: f"size({r.of(r.choice(['string', 'ints', 'strings']), d)})",
        lambda r, d: f"({r.of('bool', d)} ? {r.of('int', d)} : {r.of('int', d)})",
        lambda r, d: f"sign({r.of('quantity', d)})",
        lambda r, d: f"({r.of('ints', d)})[{r.choice([0, 1, 9])}]",
    ],
    "string": [
        lambda r, d: f"({r.of('string', d)} + {r.of('string', d)})",
        lambda r, d: f"({r.of('bool', d)} ? {r.of('string', d)} : {r.of('string', d)})",
        lambda r, d: f"string({r.of('int', d)})",
    ],
    "text": [
        lambda r, d: f"({r.of('bool', d)} ? {r.of('text', d)} : {r.of('text', d)})",
        lambda r, d: f"string({r.of('int', d)})",
    ],
    "quantity": [
        lambda r, d: f"({r.of('quantity', d)}).{r.choice(['add', 'sub'])}({r.of('quantity', d)})",
        lambda r, d: f"({r.of('bool', d)} ? {r.of('quantity', d)} : {r.of('quantity', d)})",
    ],
    "version": [lambda r, _: r.of("version", 0)],
    "ints": [
        lambda r, d: f"({r.of('ints', d)}).filter(z, z > {r.of('int', d)})",
        lambda r, d: f"({r.of('ints', d)}).map(w, w + {r.of('int', d)})",
        lambda r, d: f"({r.of('ints', d)} + {r.of('ints', d)})",
    ],
    "strings": [
        lambda r, d: f"({r.of('strings', d)}).filter(v, v != {r.of('string', d)})",
        lambda r, d: f"({r.of('strings', d)} + {r.of('strings', d)})",
    ],
}


@pytest.mark.timeout(900)
def test_verdicts_agree_on_the_common_language() -> None:
    generator = Common(5)
    environment = Environment()
    different = []
    seen: dict[object, int] = {}
    for _ in range(COUNT):
        text = generator.of("bool", generator.randint(1, 3))
        selector = environment.compile(text)
        for number, device in enumerate(DEVICES):
            try:
                ours: object = selector.matches(device)
            except EvaluationError:
                ours = "error"
            theirs = evaluate(text, device)
            seen[theirs] = seen.get(theirs, 0) + 1
            if ours != theirs:
                different.append((text, number, ours, theirs))
    assert not different, "\n".join(map(repr, different[:5]))
    assert all(seen[verdict] > COUNT / 20 for verdict in (True, False, "error"))
