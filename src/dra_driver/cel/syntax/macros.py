"""Macros: calls that the parser expands, mostly into comprehensions. The expansions are those of cel-go, node for node: costs depend on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.syntax.tree import Call, Comprehension, Entry, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral

ACCUMULATOR = "@result"
UNUSED = "#unused"
_OLD_ACCUMULATOR = "__result__"
_SORTED_INPUT = "@__sortBy_input__"


class MacroError(Exception):
    """A macro's arguments do not fit it."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(message)
        self.message = message
        self.pos = pos


class Expander:
    """Makes the nodes of one expansion; they all stand where the macro stands."""

    def __init__(self, new_id: Callable[[], int], pos: int) -> None:
        self._new_id = new_id
        self._pos = pos

    def literal(self, value: Any) -> Node:
        return Literal(self._new_id(), self._pos, value)

    def ident(self, name: str) -> Node:
        return Ident(self._new_id(), self._pos, name)

    def accumulator(self) -> Node:
        return self.ident(ACCUMULATOR)

    def call(self, function: str, *args: Node) -> Node:
        return Call(self._new_id(), self._pos, function, None, list(args))

    def member(self, function: str, target: Node, *args: Node) -> Node:
        return Call(self._new_id(), self._pos, function, target, list(args))

    def list(self, *elements: Node) -> Node:
        return ListLiteral(self._new_id(), self._pos, list(elements), frozenset())

    def map(self) -> Node:
        return MapLiteral(self._new_id(), self._pos, [])

    def presence(self, operand: Node, field: str) -> Node:
        return Select(self._new_id(), self._pos, operand, field, test_only=True)

    def loop(self, over: Node, names: tuple[str, str], init: Node, condition: Node, step: Node, result: Node) -> Node:
        return Comprehension(self._new_id(), self._pos, over, *names, ACCUMULATOR, init, condition, step, result)

    def bind(self, name: str, value: Node, body: Node) -> Node:
        """A loop over nothing whose accumulator is the bound variable."""
        nothing = self.list()
        false = self.literal(False)
        return Comprehension(self._new_id(), self._pos, nothing, UNUSED, "", name, value, false, self.ident(name), body)

    def copy(self, node: Node) -> Node:
        """The same tree with new numbers, in the same places."""
        new_id, pos = self._new_id(), node.pos
        if isinstance(node, Literal):
            return Literal(new_id, pos, node.value)
        if isinstance(node, Ident):
            return Ident(new_id, pos, node.name)
        if isinstance(node, Select):
            return Select(new_id, pos, self.copy(node.operand), node.field, node.test_only)
        if isinstance(node, Call):
            args = [self.copy(arg) for arg in node.args]
            return Call(new_id, pos, node.function, None if node.target is None else self.copy(node.target), args)
        if isinstance(node, ListLiteral):
            return ListLiteral(new_id, pos, [self.copy(element) for element in node.elements], node.optional)
        if isinstance(node, MapLiteral):
            entries = [Entry(self._pos, self.copy(entry.key), self.copy(entry.value), entry.optional) for entry in node.entries]
            return MapLiteral(new_id, pos, entries)
        if isinstance(node, StructLiteral):
            fields = [Entry(self._pos, entry.key, self.copy(entry.value), entry.optional) for entry in node.fields]
            return StructLiteral(new_id, pos, node.type_name, fields)
        if isinstance(node, Comprehension):
            parts = (node.iter_range, node.accu_init, node.condition, node.step, node.result)
            over, init, condition, step, result = (self.copy(part) for part in parts)
            return Comprehension(new_id, pos, over, node.iter_var, node.iter_var2, node.accu_var, init, condition, step, result)
        return node


Macro = Callable[[Expander, Node | None, list[Node]], Node | None]
"""Gives the expansion, or None where the call is not this macro after all. Raises MacroError."""


def _target(node: Node | None) -> Node:
    if node is None:
        raise TypeError("a receiver macro has a target")
    return node


def _variable(node: Node, wrong: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(wrong, node.pos)
    return node.name


def _loop_variable(node: Node, wrong: str) -> str:
    name = _variable(node, wrong)
    if name == _OLD_ACCUMULATOR:
        raise MacroError("iteration variable overwrites accumulator variable", node.pos)
    return name


def _one_name(args: list[Node], wrong: str = "argument must be a simple name") -> tuple[str, str]:
    return _loop_variable(args[0], wrong), ""


def _two_names(args: list[Node]) -> tuple[str, str]:
    names = _variable(args[0], "argument must be a simple name"), _variable(args[1], "argument must be a simple name")
    if names[0] == names[1]:
        raise MacroError(f"duplicate variable name: {names[0]}", args[1].pos)
    for arg in args[:2]:
        _loop_variable(arg, "")
    return names


def _has(make: Expander, _target: Node | None, args: list[Node]) -> Node:
    operand = args[0]
    if not isinstance(operand, Select):
        raise MacroError("invalid argument to has() macro", operand.pos)
    return make.presence(operand.operand, operand.field)


def _all(make: Expander, target: Node | None, names: tuple[str, str], predicate: Node) -> Node:
    init = make.literal(True)
    condition = make.call("@not_strictly_false", make.accumulator())
    step = make.call("_&&_", make.accumulator(), predicate)
    return make.loop(_target(target), names, init, condition, step, make.accumulator())


def _exists(make: Expander, target: Node | None, names: tuple[str, str], predicate: Node) -> Node:
    init = make.literal(False)
    condition = make.call("@not_strictly_false", make.call("!_", make.accumulator()))
    step = make.call("_||_", make.accumulator(), predicate)
    return make.loop(_target(target), names, init, condition, step, make.accumulator())


def _exists_one(make: Expander, target: Node | None, names: tuple[str, str], predicate: Node) -> Node:
    init, condition = make.literal(0), make.literal(True)
    step = make.call("_?_:_", predicate, make.call("_+_", make.accumulator(), make.literal(1)), make.accumulator())
    result = make.call("_==_", make.accumulator(), make.literal(1))
    return make.loop(_target(target), names, init, condition, step, result)


def _collect(make: Expander, target: Node | None, names: tuple[str, str], guard: Node | None, step: Node, init: Node) -> Node:
    condition = make.literal(True)
    if guard is not None:
        step = make.call("_?_:_", guard, step, make.accumulator())
    return make.loop(_target(target), names, init, condition, step, make.accumulator())


def _map(make: Expander, target: Node | None, args: list[Node]) -> Node:
    names = _one_name(args, "argument is not an identifier")
    init = make.list()
    step = make.call("_+_", make.accumulator(), make.list(args[-1]))
    return _collect(make, target, names, args[1] if len(args) == 3 else None, step, init)


def _filter(make: Expander, target: Node | None, args: list[Node]) -> Node:
    names = _one_name(args, "argument is not an identifier")
    init = make.list()
    return _collect(make, target, names, args[1], make.call("_+_", make.accumulator(), make.list(args[0])), init)


def _transform_list(make: Expander, target: Node | None, args: list[Node]) -> Node:
    names = _two_names(args)
    step = make.call("_+_", make.accumulator(), make.list(args[-1]))
    return _collect(make, target, names, args[2] if len(args) == 4 else None, step, make.list())


def _transform_map(make: Expander, target: Node | None, args: list[Node]) -> Node:
    names = _two_names(args)
    step = make.call("cel.@mapInsert", make.accumulator(), make.ident(names[0]), args[-1])
    return _collect(make, target, names, args[2] if len(args) == 4 else None, step, make.map())


def _transform_map_entry(make: Expander, target: Node | None, args: list[Node]) -> Node:
    names = _two_names(args)
    step = make.call("cel.@mapInsert", make.accumulator(), args[-1])
    return _collect(make, target, names, args[2] if len(args) == 4 else None, step, make.map())


def _bind(make: Expander, target: Node | None, args: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    return make.bind(_variable(args[0], "cel.bind() variable names must be simple identifiers"), args[1], args[2])


def _optional_map(function: str, wrap: Callable[[Expander, Node], Node]) -> Macro:
    def expand(make: Expander, target: Node | None, args: list[Node]) -> Node:
        name = _variable(args[0], f"{function}() variable name must be a simple identifier")
        present = make.member("hasValue", _target(target))
        bound = make.bind(name, make.member("value", make.copy(_target(target))), args[1])
        return make.call("_?_:_", present, wrap(make, bound), make.call("optional.none"))

    return expand


def _sort_by(make: Expander, target: Node | None, args: list[Node]) -> Node:
    source = _target(target)
    if not isinstance(source, (ListLiteral, Select, Ident, Comprehension, Call)):
        raise MacroError("sortBy can only be applied to a list, identifier, comprehension, call or select expression", source.pos)
    keys = _map(make, make.ident(_SORTED_INPUT), args)
    return make.bind(_SORTED_INPUT, source, make.member("@sortByAssociatedKeys", make.ident(_SORTED_INPUT), keys))


def _one(expand: Callable[[Expander, Node | None, tuple[str, str], Node], Node]) -> Macro:
    return lambda make, target, args: expand(make, target, _one_name(args), args[1])


def _two(expand: Callable[[Expander, Node | None, tuple[str, str], Node], Node]) -> Macro:
    return lambda make, target, args: expand(make, target, _two_names(args), args[2])


MacroTable = dict[tuple[str, int, bool], Macro]
"""By name, number of arguments, and whether there is a target."""

STANDARD: MacroTable = {
    ("has", 1, False): _has,
    ("all", 2, True): _one(_all),
    ("exists", 2, True): _one(_exists),
    ("exists_one", 2, True): _one(_exists_one),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}
OPTIONAL: MacroTable = {
    ("optMap", 2, True): _optional_map("optMap", lambda make, value: make.call("optional.of", value)),
    ("optFlatMap", 2, True): _optional_map("optFlatMap", lambda _make, value: value),
}
TWO_VARIABLES: MacroTable = {
    ("all", 3, True): _two(_all),
    ("exists", 3, True): _two(_exists),
    ("existsOne", 3, True): _two(_exists_one),
    ("exists_one", 3, True): _two(_exists_one),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
}
BINDINGS: MacroTable = {("bind", 3, True): _bind}
SORTING: MacroTable = {("sortBy", 2, True): _sort_by}
