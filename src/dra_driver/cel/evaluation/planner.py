"""Turns a checked tree into planned nodes: picks implementations, folds constants, gathers selections into paths.

Every step is watched by the cost tracker: Kubernetes always counts, and counting can fail an evaluation by itself (a list function whose list
is an error), so an evaluation without it would not be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.cel.checking.signatures import Function, Overload
from dra_driver.cel.checking.types import Type
from dra_driver.cel.evaluation.attributes import (
    Attribute,
    Derived,
    Either,
    Evaluable,
    FieldQualifier,
    KeyQualifier,
    Opener,
    PathQualifier,
    PresenceQualifier,
    Qualifier,
    Variable,
    key_qualifier,
)
from dra_driver.cel.evaluation.frames import Frame, Run
from dra_driver.cel.evaluation.nodes import (
    Constant,
    Equality,
    Fold,
    Invocation,
    Logical,
    Membership,
    NewList,
    NewMap,
    NewMessage,
    OptionalChoice,
    Path,
    Presence,
)
from dra_driver.cel.evaluation.tracker import CostTracker, Watched, WatchedConstant, WatchedPath, WatchedQualifier
from dra_driver.cel.evaluation.type_names import type_name
from dra_driver.cel.evaluation.values import (
    Err,
    Key,
    ListValue,
    MapValue,
    PanicError,
    TextMap,
    TypeValue,
    Uint,
    double_to_int,
    double_to_uint,
    key_of,
)
from dra_driver.cel.functions import registry
from dra_driver.cel.functions.regexes import PatternError, fixed_pattern
from dra_driver.cel.messages.descriptors import MESSAGES, NULL_VALUE
from dra_driver.cel.syntax.tree import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral, optional_entries

_CONVERSIONS = frozenset(["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"])
_SET_KINDS = frozenset({bool, float, int, str, Uint})


class PlanError(Exception):
    """A constant part of the expression fails; the text is cel-go's."""


def plan(root: Node, functions: Mapping[str, Function], type_names: frozenset[str], opener: Opener | None) -> Evaluable:
    """Raises PlanError."""
    return _Planner(functions, type_names, opener).plan(root)


class _Planner:
    def __init__(self, functions: Mapping[str, Function], type_names: frozenset[str], opener: Opener | None) -> None:
        self._functions = functions
        self._opener = opener
        self._type_names = type_names

    def plan(self, node: Node) -> Evaluable:
        return _PLANS[type(node)](self, node)

    def _constant(self, node_id: int, value: Any) -> Evaluable:
        return WatchedConstant(node_id, value)

    def _path(self, attribute: Attribute) -> WatchedPath:
        return WatchedPath(Path(attribute))

    def plan_literal(self, node: Literal) -> Evaluable:
        return self._constant(node.id, node.value)

    def plan_ident(self, node: Ident) -> Evaluable:
        if node.name.removeprefix(".") == NULL_VALUE:
            return self._constant(node.id, 0)
        if node.type.kind != "type":
            return self._path(Variable(node.id, node.name, self._opener))
        if node.name not in self._type_names:  # a variable that holds a type is one of them: cel-go looks for a type of its name
            raise PlanError(f"reference to undefined type: {node.name}")
        return self._constant(node.id, TypeValue(node.name))

    # Paths

    def _derived(self, node_id: int, operand: Evaluable) -> Derived:
        return Derived(node_id, operand, self._opener)

    def _as_path(self, node: Evaluable, node_id: int) -> Path:
        return node if isinstance(node, Path) else self._path(self._derived(node_id, node))

    def _prolong(self, path: Path, qualifier: Qualifier) -> None:
        path.attribute.add(WatchedQualifier(qualifier))

    def plan_select(self, node: Select) -> Evaluable:
        if node.qualified is not None:
            return self.plan_ident(node.qualified)
        path = self._as_path(self.plan(node.operand), node.operand.id)
        qualifier: KeyQualifier
        operand = node.operand.type
        if operand.kind == "struct" and operand.name in MESSAGES:
            qualifier = FieldQualifier(node.id, node.field, optional=False)
        else:
            qualifier = KeyQualifier(node.id, node.field, optional=False)
        if not node.test_only:
            self._prolong(path, qualifier)
            return path
        self._prolong(path, PresenceQualifier(qualifier))
        return WatchedPath(Presence(path.attribute))

    def _index(self, node: Call, args: list[Evaluable], *, optional: bool) -> Evaluable:
        path = self._as_path(args[0], args[0].id)
        index = args[1]
        if isinstance(index, Constant):
            qualifier = key_qualifier(node.id, index.value, optional=optional)
            if isinstance(qualifier, Err):
                raise PlanError(qualifier.text)
            self._prolong(path, qualifier)
        elif isinstance(index, Path):
            self._prolong(path, PathQualifier(node.id, index.attribute, optional=optional, is_path=True))
        else:
            self._prolong(path, PathQualifier(node.id, self._derived(node.id, index), optional=optional, is_path=False))
        return path

    def _conditional(self, node: Call, args: list[Evaluable]) -> Evaluable:
        when_true, when_false = (arg.attribute if isinstance(arg, Path) else self._derived(arg.id, arg) for arg in args[1:])
        return self._path(Either(node.id, args[0], when_true, when_false))

    # Calls

    def plan_call(self, node: Call) -> Evaluable:
        operands = node.args if node.target is None else [node.target, *node.args]
        args = [self.plan(operand) for operand in operands]
        function = node.function
        if function in ("_&&_", "_||_"):
            return Watched(Logical(node.id, args, decisive=function == "_||_"))
        if function == "_?_:_":
            return self._conditional(node, args)
        if function in ("_==_", "_!=_"):
            return Watched(Equality(node.id, args, negated=function == "_!=_"))
        if function in ("_[_]", "_[?_]", "_?._"):
            return self._index(node, args, optional=function != "_[_]")
        if function in ("or", "orValue") and len(args) == 2:
            return Watched(OptionalChoice(node.id, args[0], args[1], unwrap=function == "orValue", lenient=self._opener is not None))
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        call = self._invocation(node, overload, args)
        if overload == "in_list" and isinstance(args[1], Constant):
            return self._membership(node, args, call)
        if function in _CONVERSIONS and len(args) == 1 and isinstance(args[0], Constant):
            return self._constant(node.id, self._fold(call))
        return Watched(call)

    def _invocation(self, node: Call, overload: str, args: list[Evaluable]) -> Invocation:
        function = node.function
        if (whole := registry.BY_FUNCTION.get(function)) is not None:
            call = Invocation(node.id, function, overload, args, whole.implementation, eager=len(args) <= 2, takes=whole.takes)
        else:
            bound = self._bound(function, overload)
            eager = len(args) <= 2 and len(bound) == 1 and bound[0].id not in registry.LAZY
            implementation = _dispatch(function, bound)
            call = Invocation(node.id, function, overload, args, implementation, eager=eager, strict=function != "@not_strictly_false")
        pattern = args[1].value if len(args) > 1 and isinstance(args[1], Constant) else None
        if type(pattern) is not str:
            return call
        try:
            search = fixed_pattern(function, pattern)
        except PatternError as error:
            raise PlanError(str(error)) from None
        return call if search is None else Invocation(node.id, function, overload, args, search, eager=False)

    def _bound(self, function: str, overload: str) -> list[Overload]:
        """The overloads that a call may turn out to be: the one that is known, or all that have an implementation."""
        found = [candidate for candidate in self._functions[function].overloads if candidate.id in registry.BY_OVERLOAD]
        known = [candidate for candidate in found if candidate.id == overload]
        return known or found

    def _fold(self, call: Any) -> Any:
        try:
            value = call.exec(Frame(Run(CostTracker(None), None), {}))
        except PanicError as error:
            raise PlanError(str(error)) from None
        if isinstance(value, Err):
            raise PlanError(value.text)
        return value

    def _membership(self, node: Call, args: list[Evaluable], call: Invocation) -> Evaluable:
        elements = args[1].value if isinstance(args[1], Constant) else ListValue()
        if not elements:
            return self._constant(node.id, False)
        if any(type(element) not in _SET_KINDS for element in elements):
            return Watched(call)
        keys: set[Key] = set()
        for element in elements:
            keys.update(key_of(alike) for alike in _alike(element))
        return Watched(Membership(node.id, args[0], frozenset(keys)))

    # Literals of several parts

    def plan_list(self, node: ListLiteral) -> Evaluable:
        return self._construction(NewList(node.id, [self.plan(element) for element in node.elements], node.optional))

    def plan_map(self, node: MapLiteral) -> Evaluable:
        parts = [self.plan(part) for entry in node.entries for part in (entry.key, entry.value)]
        return self._construction(NewMap(node.id, parts, optional_entries(node.entries)))

    def _construction(self, made: NewList | NewMap) -> Evaluable:
        """What consists of constants is one."""
        if all(isinstance(part, Constant) for part in made.parts):
            return self._constant(made.id, self._fold(made))
        return Watched(made)

    def plan_struct(self, node: StructLiteral) -> Evaluable:
        parts = [self.plan(entry.value) for entry in node.fields]
        return Watched(NewMessage(node.id, parts, optional_entries(node.fields), node.type_name, [entry.key for entry in node.fields]))

    def plan_comprehension(self, node: Comprehension) -> Evaluable:
        accu = self.plan(node.accu_init)
        over = self.plan(node.iter_range)
        body = tuple(self.plan(part) for part in (node.condition, node.step, node.result))
        return Watched(Fold(node.id, (node.iter_var, node.iter_var2, node.accu_var), over, accu, body))


def _alike(element: Any) -> list[Any]:
    """An element and the numbers of other types that equal it."""
    kind = type(element)
    if kind is float:
        return [element, *(number for number in (double_to_int(element), double_to_uint(element)) if number is not None)]
    if kind is int:
        return [element, float(element), *([Uint(element)] if element >= 0 else [])]
    if kind is Uint:
        return [element, float(element), *([int(element)] if element < 2**63 else [])]
    return [element]


def _dispatch(function: str, bound: list[Overload]) -> Callable[..., Any]:
    """Calls the first overload that the operands match."""
    guarded = function not in registry.UNGUARDED
    candidates = [(overload.args, registry.BY_OVERLOAD[overload.id]) for overload in bound]

    def call(*values: Any) -> Any:
        for types, implementation in candidates:
            if len(types) == len(values) and (not guarded or all(map(_is_a, values, types))):
                return implementation(*values)
        for value in values:
            if isinstance(value, Err):
                return value
        return Err(f"no such overload: {function}({', '.join(map(type_name, values))})")

    return call if function != "@not_strictly_false" else candidates[0][1]


def _is_a(value: Any, t: Type) -> bool:
    """Whether a value has the type, as far as cel-go looks: into the first element of a list or map."""
    if t.kind in ("dyn", "any", "param"):
        return True
    if isinstance(value, Err) or type_name(value) != t.name:
        return False
    if t.kind == "list" and isinstance(value, ListValue) and value:
        return _is_a(value[0], t.params[0])
    if t.kind == "map" and isinstance(value, (MapValue, TextMap)) and len(value):
        key, inner = value.items()[0]
        return _is_a(key, t.params[0]) and _is_a(inner, t.params[1])
    return True


_PLANS: dict[type, Callable[[_Planner, Any], Evaluable]] = {
    Literal: _Planner.plan_literal,
    Ident: _Planner.plan_ident,
    Select: _Planner.plan_select,
    Call: _Planner.plan_call,
    ListLiteral: _Planner.plan_list,
    MapLiteral: _Planner.plan_map,
    StructLiteral: _Planner.plan_struct,
    Comprehension: _Planner.plan_comprehension,
}
