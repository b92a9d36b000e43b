"""The fast path gives what the exact evaluator gives, and takes the selectors that people write."""

from __future__ import annotations

import threading

import pytest

from dra_driver.cel import CompileError, Device, Environment, EvaluationError, Selector
from tests.cel.engine.expressions import DEVICES, Generator

ENVIRONMENT = Environment()
DEVICE_VIEWS = [Device.from_api(str(device["driver"]), device) for device in DEVICES]
G = "device.attributes['gpu.nvidia.com']"
C = "device.capacity['gpu.nvidia.com']"

COMMON = [
    f"device.driver == 'gpu.nvidia.com' && {G}.type == 'gpu' && {C}.memory.compareTo(quantity('40Gi')) >= 0",
    f"{G}.uuid.matches('^GPU-[0-9a-f-]+$') && {G}.driverVersion.compareTo(semver('550.0.0')) >= 0",
    f"{G}.type in ['gpu', 'mig'] && ({G}.index < 4 || {G}.ecc) && {G}.driverVersion.isGreaterThan(semver('550.0.0'))",
    f"cel.bind(a, {G}, has(a.type) && a.?type.orValue('') == 'gpu')",
    f"{G}.models.exists(m, m == 'b')",
    f"'b' in {G}.models",
    f"{G}.index == 1",
    f"1 == {G}.one",
    f"{G}.ecc",
    f"{G}.ecc == true",
    f"!{G}.off",
    f"{C}.memory.isGreaterThan(quantity('1Gi')) ? {G}.index > 2 : false",
    f"{G}.?nope.hasValue() || 'type' in {G}",
    f"size({G}.uni) == 7",
    "device.allowMultipleAllocations",
    f"{G}.type.startsWith('g') && {G}.type.contains('p') && {G}.type.endsWith('u')",
    f"{G}.driverVersion == semver('575.57.8')",
    f"semver('575.57.8') == {G}.driverVersion",
    f"{G}.type == {G}.uuid",
    f"{G}.type != {G}.index",
    f"{G}.driverVersion != '1.2.3'",
    f"{G}.type in [1, 2]",
    f"{G}.one in [1, 2]",
    f"{G}.index.exists(x, x == 1)",
    f"{G}.uuid.matches('^GPU-.*') && {G}.uuid.matches('.*a9b1.*') && {G}.uuid.matches('e23c$')",
    f"{G}.ver.matches('2\\\\.3') && !{G}.ver.matches('2\\\\.4')",
    f"{G}.index.matches('3')",
    f"{G}.models.matches('a')",
]


def outcome(selector: Selector, device: Device) -> object:
    try:
        return selector.matches(device)
    except EvaluationError as error:
        return str(error)


def exact(selector: Selector, device: Device) -> object:
    match, error, _ = selector.run(device)
    return match if error is None else str(error)


@pytest.mark.parametrize("text", COMMON)
def test_common_selectors_take_the_fast_path_and_agree(text: str) -> None:
    selector = ENVIRONMENT.compile(text)
    assert selector._fast is not None
    for device in DEVICE_VIEWS:
        assert outcome(selector, device) == exact(selector, device)


@pytest.mark.parametrize("seed", range(4))
def test_random_selectors_agree(seed: int) -> None:
    generator = Generator(1000 + seed)
    fast = 0
    for _ in range(1500):
        try:
            selector = ENVIRONMENT.compile(generator.selector())
        except CompileError:
            continue
        fast += selector._fast is not None
        for device in DEVICE_VIEWS:
            assert outcome(selector, device) == exact(selector, device), selector.text
    assert fast > 200


def test_no_text_of_the_user_becomes_code() -> None:
    evil = "__import__('os').system('x')"
    selector = ENVIRONMENT.compile(f'device.attributes["{evil}"].?`{"a-b"}`.orValue("{evil}") == "{evil}"')
    assert selector._fast is not None
    code = selector._fast.__code__
    assert evil not in (*code.co_consts, *code.co_names, *code.co_varnames)
    assert selector.matches(DEVICE_VIEWS[0])


def test_threads_share_selectors() -> None:
    generator = Generator(77)
    selectors: list[Selector] = []
    while len(selectors) < 60:
        try:
            selectors.append(ENVIRONMENT.compile(generator.selector()))
        except CompileError:
            continue
    selectors += [ENVIRONMENT.compile(text) for text in COMMON]
    wanted = [[exact(selector, device) for device in DEVICE_VIEWS] for selector in selectors]
    wrong: list[str] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(15):
            for selector, expected in zip(selectors, wanted, strict=True):
                if [outcome(selector, device) for device in DEVICE_VIEWS] != expected:
                    wrong.append(selector.text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
