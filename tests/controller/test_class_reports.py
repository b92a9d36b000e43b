"""What is said about a class, given classes and slices."""

from __future__ import annotations

import pytest

from dra_driver.cel import Environment, Selector
from dra_driver.controller.deviceclasses import Judge
from dra_driver.controller.report import ClassReport, State
from dra_driver.k8s.objects.resource import DeviceAttribute, DeviceCapacity, DeviceClass, DeviceClassSpec, DeviceSelector, ResourceSlice
from tests.controller.bed import FAILING, GOOD, INVALID, NOWHERE, OPTIONAL, a_class, a_slice, gpu

NODES = (a_slice("a", gpu("gpu-0"), gpu("gpu-1")), a_slice("b", gpu("gpu-0"), driver="gpu.nvidia.com"))
NIC = a_slice("a", gpu("nic-0", attributes={}, capacity={}), driver="nic.example.com")


def judged(*expressions: str, slices: tuple[ResourceSlice, ...] = NODES) -> ClassReport:
    (report,) = Judge().judge([a_class("one", *expressions)], slices)
    return report


@pytest.mark.parametrize(
    ("expressions", "state", "matching", "nodes", "failing"),
    [
        ([GOOD], State.MATCHES, 3, 2, 0),
        ([], State.MATCHES, 3, 2, 0),
        ([NOWHERE], State.UNMATCHED, 0, 0, 0),
        ([FAILING], State.FAILS, 0, 0, 3),
        ([NOWHERE, FAILING], State.UNMATCHED, 0, 0, 0),
        ([GOOD, FAILING], State.FAILS, 0, 0, 3),
        ([f"device.driver == 'x' || {FAILING}"], State.FAILS, 0, 0, 3),
        ([INVALID], State.INVALID, 0, 0, 0),
        ([GOOD, INVALID], State.INVALID, 0, 0, 0),
        ([OPTIONAL], State.MATCHES, 3, 2, 0),
        (["1"], State.INVALID, 0, 0, 0),
        (["x" * 10241], State.INVALID, 0, 0, 0),
    ],
)
def test_state_and_numbers(expressions: list[str], state: State, matching: int, nodes: int, failing: int) -> None:
    report = judged(*expressions)
    assert (report.state, report.matching, report.nodes, report.failing) == (state, matching, nodes, failing)


def test_a_mistake_is_told_with_selector_and_position() -> None:
    report = judged(GOOD, INVALID)
    assert report.note == (f"selector #1: compilation failed: ERROR: <input>:1:7: undefined field 'drvier'\n | {INVALID}\n | ......^")


def test_failures_are_grouped_by_text_with_a_sample_of_devices() -> None:
    many = a_slice("a", *(gpu(f"gpu-{index}") for index in range(8)), gpu("odd", attributes={"memory": DeviceAttribute(string="80Gi")}))
    report = judged(FAILING, slices=(many,))
    texts = {failure.text: (failure.devices, failure.sample) for failure in report.failures}
    assert texts.pop("no such key: memory") == (8, tuple(f"gpu.nvidia.com/a/gpu-{index}" for index in range(5)))
    assert list(texts.values()) == [(1, ("gpu.nvidia.com/a/odd",))]
    assert report.note.startswith("selector #0 fails on 8 devices, such as gpu.nvidia.com/a/gpu-0: no such key: memory. Ask for device.driver first")
    assert report.note.endswith("The scheduler gives up a pod when it tries such a device. 0 of 9 devices chosen.")


def test_a_device_of_another_driver_makes_an_unguarded_selector_fail() -> None:
    unguarded = "device.attributes['gpu.nvidia.com'].type == 'gpu'"
    report = judged(unguarded, slices=(*NODES, NIC))
    assert (report.state, report.matching, report.failing) == (State.FAILS, 3, 1)
    assert judged(GOOD, slices=(*NODES, NIC)).state is State.MATCHES


def test_devices_that_break_the_rules_fail_alone() -> None:
    broken = a_slice(
        "c", gpu("version", attributes={"v": DeviceAttribute(version="1.2")}), gpu("amount", capacity={"memory": DeviceCapacity("many")})
    )
    report = judged("true", slices=(*NODES, broken))
    assert (report.matching, report.failing) == (3, 2)
    assert {failure.text.split(":")[0] for failure in report.failures} == {
        "attribute v",
        "capacity memory of a device of driver gpu.nvidia.com",
    }


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old, new = a_slice("a", gpu("gpu-0"), name="old"), a_slice("a", gpu("gpu-0"), gpu("gpu-1"), generation=2, name="new")
    assert judged(GOOD, slices=(old, new)).note == "2 of 2 devices chosen on 1 node."


def test_devices_that_no_node_owns_are_counted_apart() -> None:
    shared = a_slice("fabric", gpu("gpu-0"), all_nodes=True)
    single = a_slice("mixed", gpu("gpu-0", node_name="c"), gpu("gpu-1", all_nodes=True), per_device_node_selection=True)
    report = judged(GOOD, slices=(*NODES, shared, single))
    assert (report.matching, report.nodes, report.shared) == (6, 3, 2)
    assert report.note == "6 of 6 devices chosen on 3 nodes, 2 of them reachable from several nodes."


def test_without_devices_and_without_a_cel_selector() -> None:
    assert judged(GOOD, slices=()).note == "No devices are published in ResourceSlices."
    (report,) = Judge().judge([DeviceClass(spec=DeviceClassSpec([DeviceSelector()]))], NODES)
    assert report.state is State.INVALID
    assert report.note == "selector #0: CEL expression empty (unsupported selector type?)"


def test_what_is_the_same_has_the_same_identity_whatever_the_counts() -> None:
    assert judged(GOOD).identity == judged(GOOD, slices=NODES[:1]).identity
    assert judged(FAILING).identity == judged(FAILING, slices=NODES[:1]).identity
    assert judged(INVALID).identity != judged(INVALID + " ").identity
    assert judged(FAILING).identity != judged("1").identity


def test_nothing_is_evaluated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_ = Environment.compile

    def counting(self: Environment, text: str) -> Selector:
        compiled.append(text)
        return compile_(self, text)

    monkeypatch.setattr(Environment, "compile", counting)
    slices = [a_slice(f"n{index}", gpu("gpu-0"), gpu("gpu-1"), version="1") for index in range(3)]
    classes = [a_class("one", GOOD), a_class("two", GOOD), a_class("three", NOWHERE)]
    judge = Judge()

    def evaluations() -> int:
        before = judge.evaluations
        assert len(list(judge.judge(classes, slices))) == len(classes)
        return judge.evaluations - before

    assert (evaluations(), compiled) == (12, [GOOD, NOWHERE])
    assert evaluations() == 0
    slices[1] = a_slice("n1", gpu("gpu-0"), version="2")
    assert evaluations() == 2
    classes.append(a_class("four", "true"))
    assert evaluations() == 5
    # What went out of use is forgotten.
    del classes[:2]
    assert evaluations() == 0
    classes.append(a_class("one", GOOD))
    assert (evaluations(), compiled) == (5, [GOOD, NOWHERE, "true", GOOD])


def test_a_pass_over_many_classes_evaluates_each_text_once_for_each_device() -> None:
    slices = [a_slice(f"n{index}", *(gpu(f"gpu-{device}") for device in range(8)), version="1") for index in range(10)]
    judge = Judge()
    reports = list(judge.judge([a_class(f"class-{index}", (GOOD, NOWHERE)[index % 2]) for index in range(300)], slices))
    assert judge.evaluations == 160
    assert [report.matching for report in reports] == [80, 0] * 150


def test_one_class_that_breaks_the_engine_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = Environment.compile

    def fragile(self: Environment, text: str) -> Selector:
        if text == NOWHERE:
            raise RuntimeError("boom")
        return compile_(self, text)

    monkeypatch.setattr(Environment, "compile", fragile)
    broken, good = Judge().judge([a_class("broken", NOWHERE), a_class("good", GOOD)], NODES)
    assert (broken.state, good.state) == (State.UNSUPPORTED, State.MATCHES)
    assert "RuntimeError: boom" in broken.note
