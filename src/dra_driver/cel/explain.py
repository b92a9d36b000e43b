"""Why a device is selected or not: the verdict of each term that must hold, and the value of each part of the expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dra_driver.cel.syntax.printer import print_tree, print_value
from dra_driver.cel.syntax.tree import Call, Comprehension, Ident, Literal, Node, Select, Tree, children


class Part(NamedTuple):
    """A part of the expression, where it stands (1-based), and its value or error as text."""

    text: str
    line: int
    column: int
    value: str


class Term(NamedTuple):
    """One of the terms that && joins: it holds, does not, or fails with an error."""

    text: str
    holds: bool | None
    error: str


class Explanation(NamedTuple):
    """`terms` in source order; `parts` from the outermost to the innermost, without constants and what depends on loop variables."""

    match: bool | None
    error: str
    terms: list[Term]
    parts: list[Part]


def explain(
    tree: Tree, place: Callable[[int], tuple[int, int]], evaluate: Callable[[Node], Any], verdict: Callable[[Any], bool | str]
) -> Explanation:
    """Evaluates the whole and each part on one device."""
    whole = verdict(evaluate(tree.root))
    terms: list[Term] = []
    for node in _terms(tree.root):
        holds = verdict(evaluate(node))
        terms.append(Term(print_tree(tree, node), None, holds) if isinstance(holds, str) else Term(print_tree(tree, node), holds, ""))
    parts = [Part(print_tree(tree, node), *place(node.pos), print_value(evaluate(node))) for node in _parts(tree.root)]
    return Explanation(None, whole, terms, parts) if isinstance(whole, str) else Explanation(whole, "", terms, parts)


def _terms(node: Node) -> Iterator[Node]:
    if isinstance(node, Call) and node.function == "_&&_":
        yield from _terms(node.args[0])
        yield from _terms(node.args[1])
    else:
        yield node


def _parts(node: Node) -> Iterator[Node]:
    """What has a value of its own: not constants, not whole maps of the device, not what a comprehension repeats."""
    if (
        isinstance(node, Literal)
        or (node.type.kind == "struct" and isinstance(node, Ident))
        or (node.type.kind == "map" and isinstance(node, (Ident, Select)))
    ):
        return
    if not (node.type.kind == "map" and isinstance(node, Call) and node.function == "_[_]"):
        yield node
    below = [node.iter_range, node.accu_init] if isinstance(node, Comprehension) else children(node)
    for child in below:
        yield from _parts(child)
