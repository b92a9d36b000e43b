"""Whatever the text: a compile error, an evaluation error or a result within the cost limit, never another exception.

CEL_FUZZ sets the number of texts.
"""

from __future__ import annotations

import os
import random

import pytest

from dra_driver.cel import CompileError, Device, Environment, EvaluationError
from tests.cel.engine.expressions import DEVICES, Generator

COUNT = int(os.environ.get("CEL_FUZZ", "50000"))
NESTINGS = [("(", "true", ")"), ("[", "1", "]"), ("!(", "true", ")"), ("{1: ", "2", "}"), ("has(a.", "b", ")"), ("-", "1", "")]
# fmt: off
TOKENS = [
    "device", "driver", "attributes", "capacity", "'gpu.nvidia.com'", ".", ".?", "[", "[?", "]", "(", ")", "{", "}", ",", ":", "?", "!", "-", "+",
    "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "in", "&&", "||", "true", "false", "null", "1", "2u", "1.5", "'a'", "b'x'", "r'['", "x", "y",
    "has", "all", "exists", "map", "filter", "cel", "bind", "size", "string", "int", "quantity", "semver", "optional", "of", "none", "value",
    "orValue", "type", "memory", "format", "matches", "'%s'", "'('", "'\\\\d'", "duration", "'1h'", "timestamp", "lists", "range", "sort",
    "sortBy", "distinct", "flatten", "sets", "contains", "as", "if", "\n", "`a-b`", "//", "0x1", "1e9", "'''x'''", "\\", "@", "é",
]
# fmt: on


def check(environment: Environment, text: str, devices: list[Device]) -> None:
    try:
        selector = environment.compile(text)
    except CompileError:
        return
    for device in devices:
        try:
            selector.matches(device)
        except EvaluationError:
            continue


@pytest.mark.timeout(max(600, COUNT // 50))
def test_random_texts() -> None:
    chance = random.Random(4)
    environments = [Environment(), Environment(stored=False)]
    devices = [Device.from_api(str(device["driver"]), device) for device in DEVICES]
    generator = Generator(5, wrong=0.15)
    for number in range(COUNT):
        kind = number % 5
        if kind == 0:
            text = bytes(chance.randrange(256) for _ in range(chance.randrange(40))).decode("utf-8", errors="surrogateescape")
        elif kind == 1:
            text = "".join(chr(chance.choice([chance.randrange(32, 127), chance.randrange(0x3000)])) for _ in range(chance.randrange(30)))
        elif kind in (2, 3):
            text = " ".join(chance.choice(TOKENS) for _ in range(chance.randrange(1, 14)))
        else:
            text = list(generator.selector())  # type: ignore[assignment]
            for _ in range(chance.randrange(1, 4)):
                text[chance.randrange(len(text))] = chance.choice(TOKENS)  # type: ignore[index]
            text = "".join(text)
        check(environments[number % 2], text, devices)


def nested_lists(depth: int) -> bytes:
    """A google.protobuf.Value in wire format: lists in lists."""
    data = b"\x20\x01"
    for number in range(2 * depth):
        size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
        data = (b"\n" if number % 2 == 0 else b"2") + size + data
    return data


def test_deep_messages() -> None:
    environment = Environment()
    devices = [Device.from_api("d", {})]
    for depth in (10, 400, 2000):
        carried = "".join(f"\\x{byte:02x}" for byte in nested_lists(depth))
        message = f"google.protobuf.Any{{type_url: 'google.protobuf.Value', value: b'{carried}'}}"
        assert environment.compile(f"{message} == {message}").matches(devices[0])
        for text in ("[?{}]", "google.protobuf.Struct{{fields: {{'a': {}}}}}", "dyn({}).flatten(9)", "'%s'.format([dyn({})])"):
            check(environment, f"{text.format(message)} == dyn(1)", devices)
        check(environment, f"google.protobuf.Any{{type_url: 'google.protobuf.Value', value: b'{carried[:-8]}'}} == 1", devices)


def test_deep_texts() -> None:
    environment = Environment()
    devices = [Device.from_api("d", {})]
    for opening, inner, closing in NESTINGS:
        for depth in (50, 240, 250, 251, 3000):
            check(environment, opening * depth + inner + closing * depth, devices)
    for depth in (100, 240):
        check(environment, "[0].map(x, " * depth + "1" + ")" * depth + " == []", devices)
        check(environment, "dyn(" * depth + "true" + ")" * depth, devices)
        check(environment, "dyn(!" * depth + "true" + ")" * depth, devices)
        check(environment, "true ? " * depth + "true" + " : false" * depth, devices)
        check(environment, "false ? false : " * depth + "true", devices)
