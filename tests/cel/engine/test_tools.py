"""What people and controllers use beside the verdict: reads, explanations, warnings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_driver.cel import Catalogue, Device, Environment, Part, Read, Term
from tests.cel.engine.expressions import DEVICES, Generator

ENVIRONMENT = Environment()
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "cel_cases.json").read_text(encoding="utf-8"))
KNOWN = [Device.from_api(device["driver"], device) for device in VECTORS["devices"]]
CATALOGUE = Catalogue(KNOWN)
A = "device.attributes['gpu.nvidia.com']"
C = "device.capacity['gpu.nvidia.com']"


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("device.driver == 'x'", {Read("driver")}),
        (f"{A}.type == 'gpu'", {Read("attributes", "gpu.nvidia.com", "type")}),
        (f"{A}.?type.orValue('') == {A}['uuid']", {Read("attributes", "gpu.nvidia.com", "type"), Read("attributes", "gpu.nvidia.com", "uuid")}),
        (f"has({C}.memory)", {Read("capacity", "gpu.nvidia.com", "memory")}),
        (f"'type' in {A}", {Read("attributes", "gpu.nvidia.com", "type")}),
        (f"{A}.exists(k, k == 'x')", {Read("attributes", "gpu.nvidia.com")}),
        (f"{A}[device.driver] == 1", {Read("attributes", "gpu.nvidia.com"), Read("driver")}),
        ("device.attributes.size() == 1", {Read("attributes")}),
        ("device == device", {Read("")}),
        ("cel.bind(device, {'driver': 1}, device.driver == 1)", set()),
        ("1 == 1", set()),
    ],
)
def test_reads(text: str, reads: set[Read]) -> None:
    assert ENVIRONMENT.compile(text).reads == reads


def test_devices_that_agree_on_what_is_read_get_the_same_result() -> None:
    devices = [Device.from_api(str(device["driver"]), device) for device in DEVICES]
    generator = Generator(9)
    for _ in range(600):
        try:
            selector = ENVIRONMENT.compile(generator.selector())
        except Exception:  # noqa: BLE001
            continue
        for device in devices:
            kept = _only(device, selector.reads)
            before, after = selector.run(device), selector.run(kept)
            assert (before.match, str(before.error)) == (after.match, str(after.error)), selector.text


def _only(device: Device, reads: frozenset[Read]) -> Device:
    """The device without what is not read."""
    made = Device(device.driver, {}, {}, device.allow_multiple_allocations)
    for name in ("attributes", "capacity"):
        for domain, values in getattr(device, name).items():
            for key, value in values.items():
                if {Read(""), Read(name), Read(name, domain), Read(name, domain, key)} & reads:
                    getattr(made, name).setdefault(domain, {})[key] = value
    if not {Read(""), Read("driver")} & reads:
        made.variables["device"]._mapping["driver"] = "never read"  # type: ignore[index]
    return made


def test_an_explanation_gives_each_term_and_part() -> None:
    selector = ENVIRONMENT.compile(f"device.driver == 'gpu.nvidia.com' && {A}.index > 5 && {A}.nope == 1")
    explanation = selector.explain(KNOWN[0])
    assert explanation.match is False
    assert explanation.terms == [
        Term("device.driver == 'gpu.nvidia.com'", True, ""),
        Term(f"{A}.index > 5", False, ""),
        Term(f"{A}.nope == 1", None, "no such key: nope"),
    ]
    assert Part(f"{A}.index", 1, 73, "3") in explanation.parts
    assert Part("device.driver", 1, 7, "'gpu.nvidia.com'") in explanation.parts


def test_what_an_explanation_shows_can_be_pasted_back() -> None:
    texts = [f"{A}.ids.map(i, i * 2) == [2]", f"{C}.memory.add(quantity('1Gi')).compareTo({C}.memory) > 0"]
    for text in [*texts, f"{A}.?type.optMap(t, t + 'x').hasValue()"]:
        for term in ENVIRONMENT.compile(text).explain(KNOWN[0]).terms:
            assert ENVIRONMENT.compile(term.text).run(KNOWN[0]).match is term.holds


@pytest.mark.parametrize(
    ("text", "kind", "part", "rewritten"),
    [
        (
            f"{A}.memory.compareTo(quantity('40Gi')) >= 0",
            "quantity",
            "quantities are published under device.capacity",
            f"device.driver == 'gpu.nvidia.com' && {C}.memory.compareTo(quantity('40Gi')) >= 0",
        ),
        (
            f"{A}.?memory.orValue(quantity('0')).compareTo(quantity('40Gi')) >= 0",
            "quantity",
            "gpu.nvidia.com publishes memory there",
            f"{C}.?memory.orValue(quantity('0')).compareTo(quantity('40Gi')) >= 0",
        ),
        (f"{A}.type == 'gpu'", "guard", "no such key: type", f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu'"),
        (
            f"device.driver == 'gpu.nvidia.com' && {A}.tipe == 'gpu'",
            "name",
            "did you mean 'type'?",
            f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu'",
        ),
        (
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidai.com'].type == 'gpu'",
            "name",
            "did you mean 'gpu.nvidia.com'?",
            f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu'",
        ),
        (
            f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion == '575.57.8'",
            "type",
            "is published as version but used as string",
            f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion == semver('575.57.8')",
        ),
        (f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion in ['a', 'b']", "type", "is published as version but used as string", None),
        (
            f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion.isGreaterThan(semver('550.54.08'))",
            "constant",
            'must not contain leading zeroes "08"',
            f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion.isGreaterThan(semver('550.54.8'))",
        ),
        (f"{C}.?memory.orValue(quantity('0')).isLessThan(quantity('bogus'))", "constant", "quantities must match", None),
        ("1 == 1", "always", "always true", None),
    ],
)
def test_a_warning_says_what_is_wrong_and_offers_what_works(text: str, kind: str, part: str, rewritten: str | None) -> None:
    warning = next(found for found in ENVIRONMENT.compile(text).warnings(CATALOGUE) if found.kind == kind)
    assert part in warning.message
    assert warning.rewritten == rewritten
    assert (warning.matching > 0) == (rewritten is not None)


def test_a_good_selector_has_no_warnings() -> None:
    for text in (
        f"device.driver == 'gpu.nvidia.com' && {A}.type == 'gpu' && has({C}.memory) && {C}.memory.compareTo(quantity('40Gi')) >= 0",
        f"{C}.?memory.orValue(quantity('0')).compareTo(quantity('40Gi')) >= 0",
        f"device.driver == 'gpu.nvidia.com' && {A}.driverVersion.compareTo(semver('550.0.0')) >= 0",
        "device.driver == 'gpu.nvidia.com'",
    ):
        assert ENVIRONMENT.compile(text).warnings(CATALOGUE) == []


def test_warnings_cope_with_any_selector() -> None:
    generator = Generator(21)
    for _ in range(400):
        try:
            selector = ENVIRONMENT.compile(generator.selector())
        except Exception:  # noqa: BLE001
            continue
        selector.warnings(CATALOGUE)
        selector.explain(KNOWN[0])
