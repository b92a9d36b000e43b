"""What a selector reads of a device. Devices that agree on it are alike to the selector, so it is evaluated once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dra_driver.cel.syntax.tree import Call, Comprehension, Ident, Literal, Node, Select, children

ATTRIBUTES = "attributes"
CAPACITY = "capacity"


class Read(NamedTuple):
    """One thing that is read: `map` is attributes, capacity, driver or allowMultipleAllocations.

    Without `name` the whole domain is read, without `domain` the whole map, with an empty `map` the whole device.
    """

    map: str
    domain: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        if not self.map:
            return "device"
        domain = "" if self.domain is None else f"['{self.domain}']"
        return f"device.{self.map}{domain}{'' if self.name is None else f'.{self.name}'}"


def reads_of(root: Node) -> frozenset[Read]:
    """Everything that an evaluation may look at."""
    return frozenset(read for read, _ in find_reads(root))


def find_reads(root: Node) -> Iterator[tuple[Read, Node]]:
    """Each read and the node that does it."""
    return _find(root, frozenset())


def _find(node: Node, bound: frozenset[str]) -> Iterator[tuple[Read, Node]]:
    path = _path(node, bound)
    if path is not None:
        yield path, node
        return
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.args[0], Literal) and type(node.args[0].value) is str:
        container = _path(node.args[1], bound)
        if container is not None and container.map in (ATTRIBUTES, CAPACITY) and container.domain is not None and container.name is None:
            yield container._replace(name=node.args[0].value), node
            return
    if isinstance(node, Comprehension):
        yield from _find(node.iter_range, bound)
        yield from _find(node.accu_init, bound)
        for part in (node.condition, node.step, node.result):
            yield from _find(part, bound | {node.iter_var, node.iter_var2, node.accu_var})
        return
    for child in children(node):
        yield from _find(child, bound)


def _path(node: Node, bound: frozenset[str]) -> Read | None:
    """The read that a path from `device` is, if the node is one."""
    if isinstance(node, Ident):
        return Read("") if node.name.removeprefix(".") == "device" and (node.name != "device" or "device" not in bound) else None
    step = path_step(node)
    if step is None:
        return None
    outer = _path(step[0], bound)
    key = step[1]
    if outer is None or key is None:
        return None
    if not outer.map:
        return Read(key)
    if outer.map not in (ATTRIBUTES, CAPACITY) or outer.name is not None:
        return None
    return outer._replace(domain=key) if outer.domain is None else outer._replace(name=key)


def path_step(node: Node) -> tuple[Node, str | None] | None:
    """For a selection or index the operand and the constant key (None where it is computed)."""
    if isinstance(node, Select):
        return None if node.qualified is not None else (node.operand, node.field)
    if isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
        key = node.args[1].value if isinstance(node.args[1], Literal) else None
        return node.args[0], key if type(key) is str else None
    return None


def constant_step(node: Node) -> tuple[Node, str] | None:
    """The map and the constant text that the node looks up in it."""
    if isinstance(node, Select) and not node.test_only and node.qualified is None:
        return node.operand, node.field
    if isinstance(node, Call) and node.function == "_[_]" and isinstance(node.args[1], Literal) and type(node.args[1].value) is str:
        return node.args[0], node.args[1].value
    return None
