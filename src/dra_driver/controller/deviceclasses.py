"""DeviceClasses judged by the devices that are published: what the scheduler will make of their selectors.

An expression is compiled once, and evaluated once for each device of a slice version: what has been answered is kept for as long as the slice (UID
and resourceVersion) and the expression are in use. As in the scheduler, a device's first selector that is not true settles it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dra_driver.allocation.pools import Candidate
from dra_driver.cel import CompileError, Environment, EvaluationError, Selector
from dra_driver.controller.report import ClassReport, Failure, Problem
from dra_driver.errors import ParseError
from dra_driver.k8s.objects.resource import DeviceClass, ResourceSlice

log = logging.getLogger(__name__)

SAMPLE = 5
"""How many of the devices that fail alike are named."""

SliceVersion = tuple[str, str, str]
Answer = bool | str
"""A selector's value, or the text with which it fails."""

_EMPTY = "CEL expression empty (unsupported selector type?)"


class Judge:
    """Remembers from one call to the next. `evaluations` counts. For one thread."""

    def __init__(self) -> None:
        self.evaluations = 0
        self._environment = Environment()
        self._compiled: dict[str, Selector | CompileError] = {}
        self._answers: dict[SliceVersion, _SliceAnswers] = {}

    @property
    def devices(self) -> int:
        """How many were published at the last call."""
        return sum(len(answers.candidates) for answers in self._answers.values())

    def judge(self, classes: Iterable[DeviceClass], slices: Iterable[ResourceSlice]) -> Iterator[ClassReport]:
        """The reports, one after the other as they are made; each may take milliseconds for each device that is new."""
        classes = list(classes)
        texts = {selector.cel.expression for one in classes for selector in one.spec.selectors if selector.cel}
        self._compiled = {text: found for text, found in self._compiled.items() if text in texts}
        self._answers = {version: self._answers.get(version) or _SliceAnswers(slice_) for version, slice_ in _newest(slices).items()}
        for answers in self._answers.values():
            answers.keep(self._compiled)
        for one in classes:
            try:
                report = self._report(one)
            except Exception as error:
                log.exception("class cannot be judged, going on with the others", extra={"class": one.metadata.name})
                ours = Problem(0, "", f"the CEL engine of this version failed: {type(error).__name__}: {error}", unsupported=True)
                report = ClassReport(one.metadata.name, one.metadata.uid, problems=(ours,))
            yield report

    def _report(self, device_class: DeviceClass) -> ClassReport:
        name, uid = device_class.metadata.name, device_class.metadata.uid
        problems: list[Problem] = []
        selectors: list[Selector] = []
        for index, selector in enumerate(device_class.spec.selectors):
            expression = selector.cel.expression if selector.cel else ""
            match self._compile(expression) if selector.cel else CompileError(_EMPTY):
                case CompileError() as error:
                    problems.append(Problem(index, expression, str(error)))
                case compiled:
                    selectors.append(compiled)
        if problems:
            return ClassReport(name, uid, problems=tuple(problems))
        count = _Count()
        for answers in self._answers.values():
            terms = [(selector, answers.known(selector.text)) for selector in selectors]
            for index, candidate in enumerate(answers.candidates):
                count.add(candidate, *self._decide(candidate, index, terms))
        return count.report(name, uid, selectors)

    def _compile(self, expression: str) -> Selector | CompileError:
        if expression not in self._compiled:
            try:
                self._compiled[expression] = self._environment.compile(expression)
            except CompileError as error:
                self._compiled[expression] = error
        return self._compiled[expression]

    def _decide(self, candidate: Candidate, place: int, terms: list[tuple[Selector, list[Answer | None]]]) -> tuple[Answer, int]:
        """The device's answer and the selector that gave it. `place` is the device's in the known answers."""
        for index, (selector, known) in enumerate(terms):
            answer = known[place]
            if answer is None:
                self.evaluations += 1
                answer = known[place] = _evaluate(selector, candidate)
            if answer is not True:
                return answer, index
        return True, 0


class _SliceAnswers:
    """One version of a slice, and what expressions have answered for its devices so far."""

    def __init__(self, slice_: ResourceSlice) -> None:
        self.candidates = [Candidate(slice_, index) for index in range(len(slice_.spec.devices))]
        self._by_expression: dict[str, list[Answer | None]] = {}

    def known(self, expression: str) -> list[Answer | None]:
        """By device; None is not evaluated yet."""
        if expression not in self._by_expression:
            self._by_expression[expression] = [None] * len(self.candidates)
        return self._by_expression[expression]

    def keep(self, expressions: Mapping[str, object]) -> None:
        """Forgets the others."""
        for expression in self._by_expression.keys() - expressions.keys():
            del self._by_expression[expression]


@dataclass
class _Count:
    devices: int = 0
    matching: int = 0
    shared: int = 0
    nodes: set[str] = field(default_factory=set)
    failing: dict[tuple[int, str], list[str]] = field(default_factory=dict)

    def add(self, candidate: Candidate, answer: Answer, selector: int) -> None:
        self.devices += 1
        if isinstance(answer, str):
            self.failing.setdefault((selector, answer), []).append(str(candidate.id))
        elif answer:
            self.matching += 1
            if node := candidate.slice.spec.node_name or candidate.device.node_name:
                self.nodes.add(node)
            else:
                self.shared += 1

    def report(self, name: str, uid: str, selectors: list[Selector]) -> ClassReport:
        failures = tuple(
            Failure(index, selectors[index].text, text, len(devices), tuple(sorted(devices)[:SAMPLE]))
            for (index, text), devices in sorted(self.failing.items())
        )
        return ClassReport(name, uid, self.devices, self.matching, len(self.nodes), self.shared, failures=failures)


def _evaluate(selector: Selector, candidate: Candidate) -> Answer:
    try:
        return selector.matches(candidate.view)
    except (EvaluationError, ParseError) as error:
        return str(error)


def _newest(slices: Iterable[ResourceSlice]) -> dict[SliceVersion, ResourceSlice]:
    """What pools publish now: the slices of each pool's newest generation."""
    slices = list(slices)
    generations: dict[tuple[str, str], int] = {}
    for slice_ in slices:
        pool = slice_.spec.driver, slice_.spec.pool.name
        generations[pool] = max(generations.get(pool, 0), slice_.spec.pool.generation)
    newest = (slice_ for slice_ in slices if slice_.spec.pool.generation == generations[slice_.spec.driver, slice_.spec.pool.name])
    return {(one.metadata.name, one.metadata.uid, one.metadata.resource_version): one for one in newest}
