"""From a CEL text to an answer for a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dra_driver.cel.device import Device
from dra_driver.errors import CompileError, EvaluationError

MAX_EXPRESSION_BYTES = 10240
"""Limit of the API (`CELSelectorExpressionMaxLength`)."""


class Environment:
    """The functions, macros and the variable `device` that expressions may use."""

    def compile(self, expression: str) -> Selector:
        """Raises CompileError with the position of what is wrong, or saying what this version cannot evaluate yet."""
        if len(expression.encode()) > MAX_EXPRESSION_BYTES:
            raise CompileError(f"Too long: may not be more than {MAX_EXPRESSION_BYTES} bytes")
        from dra_driver.cel import _celpy  # noqa: PLC0415 - a third of a second that a program without selectors need not spend

        return Selector(expression, _celpy.compile_expression(expression))


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression; threads may share it."""

    expression: str
    _evaluate: Callable[[Device], bool] = field(repr=False, compare=False)

    def matches(self, device: Device) -> bool:
        """Whether the expression is true of the device. Raises EvaluationError with the text that the scheduler would show."""
        if device.fault:
            raise EvaluationError(device.fault)
        return self._evaluate(device)
