"""Planned expressions: what is executed. Errors are values here, so that every operand is evaluated exactly where cel-go evaluates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation import equality
from dra_driver.cel.evaluation.attributes import Attribute, Evaluable
from dra_driver.cel.evaluation.frames import INTERRUPTED, Frame
from dra_driver.cel.evaluation.go_text import show
from dra_driver.cel.evaluation.type_names import go_name
from dra_driver.cel.evaluation.values import (
    MISSING,
    NO_OVERLOAD,
    Duration,
    Err,
    GrowingList,
    Key,
    ListValue,
    MapValue,
    OptionalValue,
    TextMap,
    Timestamp,
    key_of,
)
from dra_driver.cel.messages.building import build
from dra_driver.cel.messages.descriptors import MESSAGES

_RECEIVERS = frozenset({str, Duration, Timestamp})


class Constant:
    """A value known before the evaluation."""

    __slots__ = ("id", "value")

    def __init__(self, node_id: int, value: Any) -> None:
        self.id = node_id
        self.value = value

    def exec(self, _frame: Frame) -> Any:
        return self.value


class Path:
    """The value of a path."""

    __slots__ = ("attribute",)

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute

    @property
    def id(self) -> int:
        return self.attribute.id

    def exec(self, frame: Frame) -> Any:
        return self.attribute.resolve(frame)


class Presence(Path):
    """`has(…)`."""

    __slots__ = ()

    def exec(self, frame: Frame) -> Any:
        value = self.attribute.resolve(frame)
        return value.has_value if type(value) is OptionalValue else value


class Logical:
    """&& (`decisive` is False) or || (True): the decisive value wins over errors on either side."""

    __slots__ = ("_decisive", "id", "terms")

    def __init__(self, node_id: int, terms: list[Evaluable], *, decisive: bool) -> None:
        self.id = node_id
        self.terms = terms
        self._decisive = decisive

    def exec(self, frame: Frame) -> Any:
        problem: Err | None = None
        for term in self.terms:
            value = term.exec(frame)
            if value is self._decisive:
                return value
            if type(value) is not bool and problem is None:
                problem = value if isinstance(value, Err) else NO_OVERLOAD
        return (not self._decisive) if problem is None else problem


class Equality:
    """== and !=."""

    __slots__ = ("_negated", "args", "function", "id", "overload")

    def __init__(self, node_id: int, args: list[Evaluable], *, negated: bool) -> None:
        self.id = node_id
        self.args = args
        self.function, self.overload = ("_!=_", "not_equals") if negated else ("_==_", "equals")
        self._negated = negated

    def exec(self, frame: Frame) -> Any:
        left, right = self.args[0].exec(frame), self.args[1].exec(frame)
        if isinstance(left, Err):
            return left
        if isinstance(right, Err):
            return right
        result = equality.equal(left, right)
        return result is not True if self._negated else result


class Invocation:
    """A call of a function. With `eager`, all operands are evaluated before an error of one counts."""

    __slots__ = ("_eager", "_implementation", "_strict", "_takes", "args", "function", "id", "overload")

    def __init__(
        self,
        node_id: int,
        function: str,
        overload: str,
        args: list[Evaluable],
        implementation: Callable[..., Any],
        *,
        eager: bool,
        takes: frozenset[type] | None = None,
        strict: bool = True,
    ) -> None:
        """`takes` are the types of the first operand that the implementation is meant for."""
        self.id = node_id
        self.function = function
        self.overload = overload
        self.args = args
        self._implementation = implementation
        self._eager = eager
        self._takes = takes
        self._strict = strict

    def exec(self, frame: Frame) -> Any:
        values: list[Any] = []
        for arg in self.args:
            value = arg.exec(frame)
            if not self._eager and isinstance(value, Err):
                return value
            values.append(value)
        if self._strict and self._eager:
            for value in values:
                if isinstance(value, Err):
                    return value
        if self._takes is not None and type(values[0]) not in self._takes:
            return NO_OVERLOAD if type(values[0]) in _RECEIVERS else Err(f"no such overload: {self.function}")
        return self._implementation(*values)


class OptionalChoice:
    """`a.or(b)`, and with `unwrap` `a.orValue(b)`: the right side is evaluated only when needed."""

    __slots__ = ("_left", "_lenient", "_right", "_unwrap", "id")

    def __init__(self, node_id: int, left: Evaluable, right: Evaluable, *, unwrap: bool, lenient: bool) -> None:
        """`lenient`: what is no optional is the result itself, as before 1.37."""
        self.id = node_id
        self._lenient = lenient
        self._left = left
        self._right = right
        self._unwrap = unwrap

    def exec(self, frame: Frame) -> Any:
        left = self._left.exec(frame)
        if isinstance(left, Err):
            return left
        if type(left) is not OptionalValue:
            return left if self._lenient else NO_OVERLOAD
        if left.has_value:
            return left.value if self._unwrap else left
        return self._right.exec(frame)


class Construction:
    """A literal of several parts that is not constant; `optional` holds the indexes of the items written with `?`."""

    __slots__ = ("_optional", "id", "parts")

    def __init__(self, node_id: int, parts: list[Evaluable], optional: frozenset[int]) -> None:
        self.id = node_id
        self.parts = parts
        self._optional = optional

    def _present(self, index: int, value: Any, key: Any = MISSING) -> Any:
        """What an item holds: MISSING for an empty optional, an Err for what is no optional but was written with `?`."""
        if index not in self._optional or isinstance(value, Err):
            return value
        if type(value) is not OptionalValue:
            item = "list element" if key is MISSING else f"entry '{show(key)}'"
            return Err(f"cannot initialize optional {item} from non-optional value {show(value)}")
        return value.value if value.has_value else MISSING


class NewList(Construction):
    """A list."""

    __slots__ = ()

    def exec(self, frame: Frame) -> Any:
        elements = ListValue()
        for index, part in enumerate(self.parts):
            value = self._present(index, part.exec(frame))
            if isinstance(value, Err):
                return value
            if value is not MISSING:
                elements.append(value)
        return elements


class NewMap(Construction):
    """A map; `parts` alternates keys and values."""

    __slots__ = ()

    def exec(self, frame: Frame) -> Any:
        entries = MapValue()
        for index in range(0, len(self.parts), 2):
            key = self.parts[index].exec(frame)
            if isinstance(key, Err):
                return key
            value = self._present(index // 2, self.parts[index + 1].exec(frame), key)
            if isinstance(value, Err):
                return value
            if value is MISSING:
                entries.drop(key)
            else:
                entries.set(key, value)
        return entries


class NewMessage(Construction):
    """`type{…}`: of the types that the checker knows only protobuf's can be made, which only shows when it is evaluated."""

    __slots__ = ("_fields", "_name")

    def __init__(self, node_id: int, parts: list[Evaluable], optional: frozenset[int], name: str, fields: list[str]) -> None:
        super().__init__(node_id, parts, optional)
        self._name = name
        self._fields = fields

    def exec(self, frame: Frame) -> Any:
        values: dict[str, Any] = {}
        for index, (field, part) in enumerate(zip(self._fields, self.parts, strict=True)):
            value = self._present(index, part.exec(frame), field)
            if isinstance(value, Err):
                return value
            if value is MISSING:
                values.pop(field, None)
            else:
                values[field] = value
        return build(self._name, values) if self._name in MESSAGES else Err(f"unknown type '{self._name}'")


class Membership:
    """`x in [constants]`: one look into a set."""

    __slots__ = ("_keys", "_operand", "id")

    def __init__(self, node_id: int, operand: Evaluable, keys: frozenset[Key]) -> None:
        self.id = node_id
        self._operand = operand
        self._keys = keys

    def exec(self, frame: Frame) -> Any:
        value = self._operand.exec(frame)
        return value if isinstance(value, Err) else key_of(value) in self._keys


class Fold:
    """A comprehension."""

    __slots__ = ("accu", "accu_var", "condition", "id", "iter_range", "iter_var", "iter_var2", "result", "step")

    def __init__(self, node_id: int, names: tuple[str, str, str], iter_range: Evaluable, accu: Evaluable, body: tuple[Evaluable, ...]) -> None:
        self.id = node_id
        self.iter_var, self.iter_var2, self.accu_var = names
        self.iter_range = iter_range
        self.accu = accu
        self.condition, self.step, self.result = body

    def exec(self, frame: Frame) -> Any:
        over = self.iter_range.exec(frame)
        if isinstance(over, Err):
            return over
        inner = FoldFrame(self, frame)
        pairs: Any
        if isinstance(over, ListValue):
            pairs = enumerate(over) if self.iter_var2 else zip(over, over, strict=True)
        elif isinstance(over, (MapValue, TextMap)):
            pairs = over.items()
        elif self.iter_var2:
            return Err(f"unsupported comprehension range type: {go_name(over)}")
        else:
            return Err(f"got '{go_name(over)}', expected iterable type")
        return inner.loop(pairs)


class FoldFrame(Frame):
    """The variables of a running comprehension: the accumulator, which starts when it is first needed, and the loop variables."""

    __slots__ = ("_accu", "_done", "_first", "_fold", "_growing", "_parent", "_second", "_started")

    def __init__(self, fold: Fold, parent: Frame) -> None:
        super().__init__(parent.run, parent.variables)
        self._fold = fold
        self._parent = parent
        self._accu: Any = None
        self._first: Any = None
        self._second: Any = None
        self._started = False
        self._growing = False
        self._done = False

    def outermost(self) -> Frame:
        return self._parent.outermost()

    def resolve(self, name: str) -> Any:
        fold = self._fold
        if name == fold.accu_var:
            if not self._started:
                self._started = True
                self._accu = self._start()
            return self._accu
        if not self._done:
            if name == fold.iter_var:
                return self._first
            if name == fold.iter_var2:
                return self._second
        return self._parent.resolve(name)

    def _start(self) -> Any:
        value = self._fold.accu.exec(self._parent)
        if isinstance(value, ListValue) and not value:
            self._growing = True
            return GrowingList()
        if isinstance(value, (MapValue, TextMap)) and not len(value):
            self._growing = True
            return MapValue()
        return value

    def loop(self, pairs: Any) -> Any:
        fold, run = self._fold, self.run
        for self._first, self._second in pairs:
            if fold.condition.exec(self) is False:
                break
            self._accu = fold.step.exec(self)
            self._started = True
            if run.must_stop():
                return INTERRUPTED
        self._done = True
        value = fold.result.exec(self)
        if self._growing and type(value) is GrowingList:
            return ListValue(value)
        return value
