"""A compiled selector: evaluates devices exactly as the scheduler does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from dra_driver.cel.compiled import compile_fast
from dra_driver.cel.device import Device
from dra_driver.cel.evaluation.attributes import Evaluable
from dra_driver.cel.evaluation.frames import Frame, Run
from dra_driver.cel.evaluation.tracker import CancelledError, CostTracker
from dra_driver.cel.evaluation.type_names import refusal, type_name
from dra_driver.cel.evaluation.values import Err, OptionalValue, PanicError
from dra_driver.cel.explain import Explanation, explain
from dra_driver.cel.lint import Catalogue, SelectorWarning, lint
from dra_driver.cel.reads import Read, reads_of
from dra_driver.cel.syntax.source import Source
from dra_driver.cel.syntax.tree import Node, Tree
from dra_driver.errors import EvaluationError

MAX_RUNTIME_COST = 1_000_000
_MAX_UNCOUNTED_COST = 100_000
"""Selectors whose static estimate is far enough below the limit cannot reach it on a device that keeps the API's limits."""

Interrupt = Callable[[], bool]
"""Asked now and then during long evaluations; True stops it."""


class Context(NamedTuple):
    """What a selector needs of its environment: to plan a part of the expression, to compile another text, whether devices may have lists."""

    plan: Callable[[Node], Evaluable]
    compile: Callable[[str], Selector]
    takes_lists: bool


class Outcome(NamedTuple):
    """What one evaluation gave: a match or an error, and its actual cost (None where the device itself is at fault)."""

    match: bool | None
    error: EvaluationError | None
    cost: int | None


class Selector:
    """Immutable and shared by threads."""

    def __init__(self, text: str, tree: Tree, program: Evaluable, result_type: str, max_cost: int, context: Context) -> None:
        """Made by Environment.compile."""
        self.text = text
        self.result_type = result_type
        self.max_cost = max_cost
        self._tree = tree
        self._program = program
        self._plan, self._compile, self.takes_lists = context
        self._fast = compile_fast(tree) if max_cost <= _MAX_UNCOUNTED_COST else None

    def matches(self, device: Device, interrupt: Interrupt | None = None) -> bool:
        """Whether the device is selected. Raises EvaluationError with the scheduler's text."""
        inputs = device.inputs if self.takes_lists else device.scalar_inputs
        if inputs is not None and self._fast is not None:
            try:
                return self._fast(*inputs)
            except Exception:  # noqa: BLE001, S110
                pass  # whatever it was, the exact evaluator knows what it means
        outcome = self.run(device, interrupt)
        if outcome.error is not None:
            raise outcome.error
        return bool(outcome.match)

    def run(self, device: Device, interrupt: Interrupt | None = None) -> Outcome:
        """The exact evaluation with its cost."""
        if problem := self.problem(device):
            return Outcome(None, EvaluationError(problem), None)
        tracker = CostTracker(MAX_RUNTIME_COST)
        match = _to_bool(_execute(self._program, device, tracker, interrupt))
        if isinstance(match, str):
            return Outcome(None, EvaluationError(match), tracker.cost)
        return Outcome(match, None, tracker.cost)

    def problem(self, device: Device) -> str:
        """Why the device cannot be evaluated at all, if so."""
        return device.problem if self.takes_lists else device.scalar_problem

    @functools.cached_property
    def reads(self) -> frozenset[Read]:
        """What an evaluation may look at; devices that agree on it get the same result."""
        return reads_of(self._tree.root)

    def explain(self, device: Device) -> Explanation:
        """The verdict of each term and the value of each part on one device."""
        if problem := self.problem(device):
            return Explanation(None, problem, [], [])
        source = Source(self.text)

        def place(offset: int) -> tuple[int, int]:
            found = source.diagnostic("", offset)
            return found.line, found.column

        return explain(self._tree, place, lambda node: _execute(self._plan(node), device, CostTracker(MAX_RUNTIME_COST), None), _to_bool)

    def warnings(self, catalogue: Catalogue) -> list[SelectorWarning]:
        """What is likely wrong with the selector, given what drivers publish."""
        return lint(self.text, self._tree, catalogue, lambda text: self._compile(text).matches)


def _execute(program: Evaluable, device: Device, tracker: CostTracker, interrupt: Interrupt | None) -> Any:
    """The value or Err of a program on a device."""
    try:
        return program.exec(Frame(Run(tracker, interrupt), device.variables))
    except CancelledError as error:
        return Err(str(error))
    except PanicError as error:
        return Err(f"internal error: {error}")


def _to_bool(value: Any) -> bool | str:
    """The result as a bool, or why it is none."""
    if isinstance(value, Err):
        return value.text
    inner = value
    while type(inner) is OptionalValue and inner.has_value:
        inner = inner.value
    if type(inner) is bool:
        return inner
    reason = "optional.none() dereference" if type(inner) is OptionalValue else refusal(inner, "bool")
    return f"CEL result of type {type_name(value)} could not be converted to bool: {reason}"
