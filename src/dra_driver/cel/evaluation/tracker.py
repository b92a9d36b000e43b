"""The actual cost of an evaluation, counted step by step as cel-go's tracker does, its stack of pending operands included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dra_driver.cel.evaluation.attributes import Either, Evaluable, FieldQualifier, KeyQualifier, PathQualifier, PresenceQualifier, Qualifier
from dra_driver.cel.evaluation.frames import Frame
from dra_driver.cel.evaluation.nodes import Constant, Equality, Fold, Invocation, Logical, NewList, NewMap, NewMessage, Path, Presence
from dra_driver.cel.evaluation.runtime_cost import call_cost
from dra_driver.cel.evaluation.values import Err

_CONSTRUCTION = {NewList: 10, NewMap: 30, NewMessage: 40}


class CancelledError(Exception):
    """The cost limit was exceeded."""


class CostTracker:
    """Counts; raises CancelledError above `limit`."""

    def __init__(self, limit: int | None) -> None:
        self.cost = 0
        self._limit = limit
        self._stack: list[tuple[int, Any]] = []

    def observe(self, step: Any, step_id: int, value: Any) -> None:
        """Called after each step with its value."""
        count = _COUNTS.get(type(step))
        if count is not None:
            count(self, step)
        elif isinstance(step, (Equality, Invocation)):
            args = self._take(step.args)
            if args is not None:
                self.cost += call_cost(step.function, step.overload, args, value)
        self._stack.append((step_id, value))
        if self._limit is not None and self.cost > self._limit:
            raise CancelledError("operation cancelled: actual cost limit exceeded")

    def drop(self, *ids: int) -> None:
        """Removes each number and everything above it."""
        for wanted in ids:
            for index in range(len(self._stack) - 1, -1, -1):
                if self._stack[index][0] == wanted:
                    del self._stack[index:]
                    break

    def _take(self, args: Sequence[Evaluable]) -> list[Any] | None:
        """The values of the operands, from the top of the stack; None where one is not there."""
        values: list[Any] = []
        for arg in reversed(args):
            wanted = arg.id
            for index in range(len(self._stack) - 1, -1, -1):
                if self._stack[index][0] == wanted:
                    values.append(self._stack[index][1])
                    del self._stack[index:]
                    break
            else:
                return None
        values.reverse()
        return values

    def count_path(self, path: Path) -> None:
        """A path costs 1 on top of its steps; a choice between paths costs nothing itself."""
        attribute = path.attribute
        if isinstance(attribute, Either):
            self.drop(attribute.when_false.id, attribute.when_true.id, attribute.condition.id)
        else:
            self.drop(attribute.id)
            self.cost += 1
        if isinstance(path, Presence):
            self.cost -= 1

    def count_key(self, key: Any) -> None:
        """A step of a path; one that is computed by a whole expression is on the stack itself."""
        if isinstance(key, PathQualifier) and not key.is_path:
            self.drop(key.id)
        self.cost += 1

    def count_terms(self, node: Logical) -> None:
        self.drop(*(term.id for term in node.terms))

    def count_fold(self, node: Fold) -> None:
        self.drop(node.iter_range.id)

    def count_construction(self, node: Any) -> None:
        self._take(node.parts)
        self.cost += _CONSTRUCTION[type(node)]


_COUNTS: dict[type, Callable[[CostTracker, Any], None]] = {
    Path: CostTracker.count_path,
    Presence: CostTracker.count_path,
    KeyQualifier: CostTracker.count_key,
    FieldQualifier: CostTracker.count_key,
    PresenceQualifier: CostTracker.count_key,
    PathQualifier: CostTracker.count_key,
    Logical: CostTracker.count_terms,
    Fold: CostTracker.count_fold,
    NewList: CostTracker.count_construction,
    NewMap: CostTracker.count_construction,
    NewMessage: CostTracker.count_construction,
}


def _observe(frame: Frame, step: Any, step_id: int, value: Any) -> None:
    tracker = frame.run.tracker
    if tracker is not None:
        tracker.observe(step, step_id, value)


class Watched:
    """A step whose cost is counted."""

    __slots__ = ("id", "node")

    def __init__(self, node: Evaluable) -> None:
        self.id = node.id
        self.node = node

    def exec(self, frame: Frame) -> Any:
        value = self.node.exec(frame)
        _observe(frame, self.node, self.id, value)
        return value


class WatchedConstant(Constant):
    """A constant; it costs nothing but is an operand."""

    __slots__ = ()

    def exec(self, frame: Frame) -> Any:
        _observe(frame, None, self.id, self.value)
        return self.value


class WatchedPath(Path):
    """A path whose cost is counted."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        super().__init__(path.attribute)
        self._path = path

    def exec(self, frame: Frame) -> Any:
        value = self._path.exec(frame)
        _observe(frame, self._path, self.id, value)
        return value


class WatchedQualifier:
    """A step of a path whose cost is counted."""

    __slots__ = ("_inner", "id", "optional")

    def __init__(self, inner: Qualifier) -> None:
        self._inner = inner
        self.id = inner.id
        self.optional = inner.optional

    def qualify(self, frame: Frame, obj: Any) -> Any:
        value = self._inner.qualify(frame, obj)
        _observe(frame, self._inner, self.id, value)
        return value

    def find(self, frame: Frame, obj: Any, *, presence_only: bool) -> tuple[Any, bool] | Err:
        found = self._inner.find(frame, obj, presence_only=presence_only)
        value, present = (found, False) if isinstance(found, Err) else found
        if present or presence_only:
            _observe(frame, self._inner, self.id, value)
        return found
