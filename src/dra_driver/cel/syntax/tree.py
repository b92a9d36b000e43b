"""The abstract syntax tree: macros are already expanded into comprehensions, operators are calls of functions such as `_==_`.

A node has a number (`id`, unique except where a macro repeats a node), its place (`pos`, a code point offset) and, after the checker, its
static `type`. What a macro was written as stays beside its expansion, for printing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dra_driver.cel.checking.types import Type


@dataclass(slots=True, eq=False)
class Node:
    """Common to all nodes."""

    id: int
    pos: int
    type: Type = field(init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant as a CEL value: None, bool, int, Uint, float, str or bytes."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable or type name; the checker replaces the name by the resolved one. A leading dot means "not a local variable"."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.field`, or with `test_only` the presence test `has(operand.field)`; `qualified` is set where the whole is one name (`net.IP`)."""

    operand: Node
    field: str
    test_only: bool = False
    qualified: Ident | None = None


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator; `overloads` holds the candidates that the checker could not exclude."""

    function: str
    target: Node | None
    args: list[Node]
    overloads: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """`[a, ?b]`; `optional` holds the indexes of elements written with `?`."""

    elements: list[Node]
    optional: frozenset[int]


@dataclass(slots=True, eq=False)
class Entry:
    """One `key: value` of a map, or (with a name as key) one field of a message."""

    pos: int
    key: Any
    value: Node
    optional: bool


def optional_entries(entries: list[Entry]) -> frozenset[int]:
    """The indexes of the entries written with `?`."""
    return frozenset(index for index, entry in enumerate(entries) if entry.optional)


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """`{key: value, ?key: optional}`."""

    entries: list[Entry]


@dataclass(slots=True, eq=False)
class StructLiteral(Node):
    """`type.name{field: value}`."""

    type_name: str
    fields: list[Entry]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A loop: `accu` starts at `init`, `step` gives its next value while `condition` holds, `result` is the value of the whole."""

    iter_range: Node
    iter_var: str
    iter_var2: str
    accu_var: str
    accu_init: Node
    condition: Node
    step: Node
    result: Node


@dataclass(slots=True, eq=False)
class Broken(Node):
    """Stands where the parser has reported an error."""


class MacroCall(NamedTuple):
    """A macro as written."""

    function: str
    target: Node | None
    args: list[Node]


@dataclass(slots=True)
class Tree:
    """A parsed expression. `macros` maps the id of an expansion to what was written; `height` bounds the nesting."""

    root: Node
    macros: dict[int, MacroCall]
    height: int


def children(node: Node) -> list[Node]:
    """The direct sub-expressions, in source order of the expanded tree."""
    return _CHILDREN[type(node)](node)


_CHILDREN: dict[type, Callable[[Any], list[Node]]] = {
    Literal: lambda _: [],
    Ident: lambda _: [],
    Broken: lambda _: [],
    Call: lambda node: node.args if node.target is None else [node.target, *node.args],
    Select: lambda node: [] if node.qualified else [node.operand],
    ListLiteral: lambda node: node.elements,
    MapLiteral: lambda node: [part for entry in node.entries for part in (entry.key, entry.value)],
    StructLiteral: lambda node: [entry.value for entry in node.fields],
    Comprehension: lambda node: [node.iter_range, node.accu_init, node.condition, node.step, node.result],
}


def walk(root: Node) -> list[Node]:
    """Every node, parents before children, left to right."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += reversed(children(node))
    return found
