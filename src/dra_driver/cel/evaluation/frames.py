"""What surrounds an evaluation: the variables in sight, and the state that the whole run shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dra_driver.cel.evaluation.values import MISSING, Err

if TYPE_CHECKING:
    from dra_driver.cel.evaluation.tracker import CostTracker

CHECK_EVERY = 100
"""An interrupt is looked for after so many loop iterations."""

INTERRUPTED = Err("operation interrupted")


class Run:
    """One evaluation: its cost tracker, if costs are counted, and the question whether to stop."""

    __slots__ = ("_interrupt", "_iterations", "interrupted", "tracker")

    def __init__(self, tracker: CostTracker | None, interrupt: Callable[[], bool] | None) -> None:
        self.tracker = tracker
        self.interrupted = False
        self._interrupt = interrupt
        self._iterations = 0

    def must_stop(self) -> bool:
        """Called after each loop iteration."""
        if self._interrupt is None or self.interrupted:
            return self.interrupted
        self._iterations += 1
        if self._iterations % CHECK_EVERY == 0 and self._interrupt():
            self.interrupted = True
        return self.interrupted


class Frame:
    """The outermost variables."""

    __slots__ = ("run", "variables")

    def __init__(self, run: Run, variables: Mapping[str, Any]) -> None:
        self.run = run
        self.variables = variables

    def resolve(self, name: str) -> Any:
        """A variable's value, or MISSING."""
        return self.variables.get(name, MISSING)

    def outermost(self) -> Frame:
        """The frame without loop variables."""
        return self
