"""The index gives what evaluating every selector on every device gives, whatever was added, changed and removed before."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.cel import Device, Environment, EvaluationError, Index, Selector
from dra_driver.cel.selector import Context

A = "device.attributes['d']"
TEXTS = [
    "device.driver == 'd'",
    f"{A}.type == 'gpu'",
    f"{A}.?type.orValue('x') == 'gpu' && {A}.?index.orValue(0) > 0",
    f"{A}.exists(k, k == 'index')",
    "device.attributes.size() == 1",
    f"has({A}.version) && {A}.version.isGreaterThan(semver('1.0.0'))",
    "device.capacity['d'].?memory.orValue(quantity('0')).isInteger()",
    "device == device && device.allowMultipleAllocations",
    "true",
    f"{A}.index in [1, 2]",
]
SELECTORS = {text: Environment().compile(text) for text in TEXTS}
SELECTORS |= {f"1.36: {text}": Environment("1.36").compile(text) for text in TEXTS}

values = st.one_of(
    st.sampled_from(["gpu", "mig", ""]).map(lambda text: {"string": text}),
    st.integers(0, 2).map(lambda number: {"int": number}),
    st.booleans().map(lambda flag: {"bool": flag}),
    st.sampled_from(["1.0.0", "2.0.0+b", "2.0.0", "bad"]).map(lambda text: {"version": text}),
    st.just({"ints": [1, 0]}),
)
devices = st.builds(
    lambda driver, attributes, memory, multiple: Device.from_api(
        driver, {"attributes": attributes, "capacity": {"memory": memory} if memory else {}, "allowMultipleAllocations": multiple}
    ),
    st.sampled_from(["d", "e"]),
    st.dictionaries(st.sampled_from(["type", "index", "version", "d/type"]), values, max_size=3),
    st.sampled_from(["", "1", "1000m", "1Gi", "1024Mi"]),
    st.booleans(),
)
steps = st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), devices)), max_size=25)


def result(selector: Selector, device: Device) -> Any:
    try:
        return selector.matches(device)
    except EvaluationError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_index_equals_brute_force(changes: list[tuple[int, Device | None]]) -> None:
    index: Index[str, int] = Index(SELECTORS)
    present: dict[int, Device] = {}
    for key, device in changes:
        if device is None:
            index.drop(key)
            present.pop(key, None)
        else:
            index.put(key, device)
            present[key] = device
    assert len(index) == len(present)
    for key in present:
        assert index.results(key) == {name: index.result(name, key) for name in SELECTORS}
    for name, selector in SELECTORS.items():
        wanted = {key: result(selector, device) for key, device in present.items()}
        found = {key: outcome if isinstance(outcome := index.result(name, key), bool) else str(outcome) for key in present}
        assert found == wanted
        assert set(index.matching(name)) == {key for key, outcome in wanted.items() if outcome is True}
        assert index.count(name) == sum(outcome is True for outcome in wanted.values())
        errors = [outcome for outcome in wanted.values() if isinstance(outcome, str)]
        assert {text: failure.devices for text, failure in index.failures(name).items()} == {text: errors.count(text) for text in errors}


def test_alike_devices_are_evaluated_once() -> None:
    evaluated = 0

    class Counting(Selector):
        def matches(self, device: Device, interrupt: Any = None) -> bool:
            nonlocal evaluated
            evaluated += 1
            return super().matches(device, interrupt)

    selector = SELECTORS[TEXTS[1]]
    makers = Context(selector._plan, selector._compile, takes_lists=True)
    selector = Counting(selector.text, selector._tree, selector._program, selector.result_type, selector.max_cost, makers)
    index: Index[str, int] = Index({"s": selector})
    for key in range(1000):
        index.put(key, Device("d", {"type": "gpu" if key % 2 else "mig", "index": key}, {}, None))
    assert index.count("s") == 500
    assert evaluated == 2
    index.put(7, Device("d", {"type": "mig", "index": 7}, {}, None))
    assert index.count("s") == 499
    assert evaluated == 2
