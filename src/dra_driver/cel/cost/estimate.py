"""The static cost of a checked expression: what it may cost at most, given how large a device's parts may be.

cel-go's estimator, rule for rule; the API server refuses a selector whose estimate exceeds 1,000,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dra_driver.cel.checking.types import Type
from dra_driver.cel.cost import ranges
from dra_driver.cel.cost.calls import CallEstimate, Operand, estimate_call
from dra_driver.cel.cost.paths import NOWHERE, FieldPath
from dra_driver.cel.cost.ranges import NOTHING, ONE, UNKNOWN, Range, fixed
from dra_driver.cel.cost.rates import REGEX_FACTOR, STRING_FACTOR
from dra_driver.cel.syntax.tree import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral

PathSize = Callable[[tuple[str, ...]], int | None]
"""How large what stands at a path from a variable may be."""

_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_NO_ENTRY = (2**64 - 1, 0)
_ORDER_OVERLOADS = frozenset(f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes"))


class _Entries(NamedTuple):
    """The sizes of a list's or map's keys and values."""

    kind: str
    key: Range
    value: Range


class _Local(NamedTuple):
    """What is known of a variable of a comprehension."""

    path: FieldPath
    size: Range | None
    entries: _Entries | None


def estimate(root: Node, path_size: PathSize) -> Range:
    """The least and the highest cost."""
    return _Estimator(path_size).cost(root)


def _is_scalar(t: Type) -> bool:
    return t.kind in _SCALARS or (t.kind == "opaque" and t.name == "optional_type" and _is_scalar(t.params[0]))


def _literal_size(value: Any) -> Range:
    return fixed(len(value)) if isinstance(value, (str, bytes)) else ONE


def _is_bind(node: Comprehension) -> bool:
    over, condition = node.iter_range, node.condition
    return isinstance(over, ListLiteral) and not over.elements and isinstance(condition, Literal) and condition.value is False


def _union_entries(left: _Entries | None, right: _Entries | None) -> _Entries | None:
    if left is None or right is None:
        return None
    return _Entries(left.kind, ranges.union(left.key, right.key), ranges.union(left.value, right.value))


class _Estimator:
    def __init__(self, path_size: PathSize) -> None:
        self._path_size = path_size
        self._paths: dict[int, FieldPath] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        """The cost of evaluating a node; sizes and paths are noted on the way."""
        return _COSTS[type(node)](self, node)

    def visit_literal(self, _node: Literal) -> Range:
        return NOTHING

    def visit_ident(self, node: Ident) -> Range:
        local = self._local(node.name)
        self._paths[node.id] = FieldPath(node.name) if local is None else local.path
        return ONE

    def visit_struct(self, node: StructLiteral) -> Range:
        return ranges.add(*(self.cost(entry.value) for entry in node.fields), fixed(40))

    def visit_fold(self, node: Comprehension) -> Range:
        return self._bind(node) if _is_bind(node) else self._comprehension(node)

    # What is known of a node

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _path(self, node: Node) -> FieldPath:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(node.id, NOWHERE)

    def _size(self, node: Node) -> Range | None:
        if (known := self._sizes.get(node.id)) is not None:
            return known
        if isinstance(node, Literal):
            return _literal_size(node.value)
        if isinstance(node, ListLiteral):
            return fixed(len(node.elements))
        if isinstance(node, MapLiteral):
            return fixed(len(node.entries))
        if (most := self._path_size(self._path(node).steps)) is not None:
            self._sizes[node.id] = (0, most)
            return 0, most
        if _is_scalar(node.type):
            return ONE
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local is not None else None

    def _size_or_unknown(self, node: Node) -> Range:
        return self._size(node) or UNKNOWN

    def _entries_of(self, node: Node) -> _Entries | None:
        if (known := self._entries.get(node.id)) is not None:
            return known
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local is not None else None

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        hidden = path.steps[:1] in (("@result",), ("__result__",))
        return Operand(NOWHERE if hidden else path, node.type, node, self._size(node))

    # Nodes

    def visit_select(self, node: Select) -> Range:
        if node.qualified is not None:
            return self.cost(node.qualified)
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        self._paths[node.id] = self._path(node.operand).append(node.field)
        return ranges.add(cost, ONE) if node.operand.type.kind in ("map", "struct", "param") else cost

    def visit_list(self, node: ListLiteral) -> Range:
        cost = NOTHING
        element = _NO_ENTRY if node.elements else NOTHING
        for part in node.elements:
            cost = ranges.add(cost, self.cost(part))
            element = ranges.union(element, self._size_or_unknown(part))
        self._entries[node.id] = _Entries("list", ONE, element)
        return ranges.add(cost, fixed(10))

    def visit_map(self, node: MapLiteral) -> Range:
        cost = NOTHING
        key = value = _NO_ENTRY if node.entries else NOTHING
        for entry in node.entries:
            cost = ranges.add(cost, self.cost(entry.key), self.cost(entry.value))
            key = ranges.union(key, self._size_or_unknown(entry.key))
            value = ranges.union(value, self._size_or_unknown(entry.value))
        self._entries[node.id] = _Entries("map", key, value)
        return ranges.add(cost, fixed(30))

    def _bind(self, node: Comprehension) -> Range:
        cost = ranges.add(self.cost(node.iter_range), self.cost(node.accu_init))
        self._push_bound(node.accu_var, node.accu_init)
        cost = ranges.add(cost, self.cost(node.result))
        self._pop(node.accu_var)
        self._copy_sizes(node, node.result)
        return cost

    def _copy_sizes(self, target: Node, source: Node) -> None:
        if (size := self._size(source)) is not None:
            self._sizes[target.id] = size
        if (entries := self._entries_of(source)) is not None:
            self._entries[target.id] = entries

    def _push_bound(self, name: str, value: Node) -> None:
        self._push(name, _Local(self._path(value), self._size(value), self._entries_of(value)))

    def _comprehension(self, node: Comprehension) -> Range:
        cost = ranges.add(self.cost(node.iter_range), self.cost(node.accu_init))
        self._push_bound(node.accu_var, node.accu_init)
        self._push_loop_variables(node)
        condition = self.cost(node.condition)
        step = self.cost(node.step)
        self._pop(node.iter_var)
        if node.iter_var2:
            self._pop(node.iter_var2)
        cost = ranges.add(cost, self.cost(node.result))
        self._pop(node.accu_var)
        count = self._size_or_unknown(node.iter_range)
        cost = ranges.add(cost, ranges.multiply(count, ranges.add(step, condition)))
        if isinstance(node.accu_init, Literal):
            self._sizes[node.id] = _literal_size(node.accu_init.value)
        elif isinstance(node.accu_init, (ListLiteral, MapLiteral)):
            self._sizes[node.id] = count
            if (entries := self._entries_of(node.step)) is not None:
                self._entries[node.id] = entries
        return cost

    def _push_loop_variables(self, node: Comprehension) -> None:
        entries = self._entries_of(node.iter_range)
        path = self._path(node.iter_range)
        is_list = (node.iter_range.type.kind if entries is None else entries.kind) == "list"
        key = None if entries is None else entries.key
        value = None if entries is None else entries.value
        if node.iter_var2:
            self._push(node.iter_var, _Local(path.append("@indices" if is_list else "@keys"), key, None))
            self._push(node.iter_var2, _Local(path.append("@items" if is_list else "@values"), value, None))
        elif is_list:
            self._push(node.iter_var, _Local(path.append("@items"), value, None))
        else:
            self._push(node.iter_var, _Local(path.append("@keys"), key, None))

    # Calls

    def visit_call(self, node: Call) -> Range:
        if node.function == "dyn":
            cost = self.cost(node.args[0])
            self._copy_sizes(node, node.args[0])
            return ranges.add(ONE, cost)
        arg_costs: list[Range] = []
        args: list[Operand] = []
        for arg in node.args:
            arg_costs.append(self.cost(arg))
            args.append(self._operand(arg))
        if not node.overloads:
            return NOTHING
        target_cost, target = NOTHING, None
        if node.target is not None:
            target_cost = self.cost(node.target)
            target = self._operand(node.target)
        cost = _NO_ENTRY
        result: Range | None = None
        for overload in node.overloads:
            call = self._overload_cost(node, overload, target, args, arg_costs)
            cost = ranges.union(cost, call.cost)
            if call.result is not None:
                result = call.result if result is None else ranges.union(result, call.result)
            if overload in ("index_list", "index_map"):
                entries = self._entries_of(node.args[0])
                result = None if entries is None else entries.value
                self._paths[node.id] = self._path(node.args[0]).append("@items" if overload == "index_list" else "@values")
            if result is None:
                result = self._size(node)
        if result is not None:
            self._sizes[node.id] = result
        return ranges.add(target_cost, cost)

    def _overload_cost(self, node: Call, overload: str, target: Operand | None, args: list[Operand], arg_costs: list[Range]) -> CallEstimate:
        arguments = ranges.add(*arg_costs)
        if (known := estimate_call(node.function, overload, target, args, self._path_size)) is not None:
            return CallEstimate(ranges.add(known.cost, arguments), known.result)
        if overload in ("logical_or", "logical_and"):
            return CallEstimate((arg_costs[0][0], ranges.add(arg_costs[0], arg_costs[1])[1]))
        if overload == "conditional":
            return self._conditional(node, args, arg_costs)
        if overload in ("add_string", "add_bytes", "add_list"):
            return self._addition(node, overload, args, arguments)
        cost, result = _core_cost(overload, target, args)
        return CallEstimate(ranges.add(cost, arguments), result)

    def _conditional(self, node: Call, args: list[Operand], arg_costs: list[Range]) -> CallEstimate:
        entries = _union_entries(self._entries_of(node.args[1]), self._entries_of(node.args[2]))
        if entries is not None:
            self._entries[node.id] = entries
        cost = ranges.add(arg_costs[0], ranges.union(arg_costs[1], arg_costs[2]))
        return CallEstimate(cost, ranges.union(args[1].size_or_unknown, args[2].size_or_unknown))

    def _addition(self, node: Call, overload: str, args: list[Operand], arguments: Range) -> CallEstimate:
        size = ranges.add(args[0].size_or_unknown, args[1].size_or_unknown)
        entries = _union_entries(self._entries_of(node.args[0]), self._entries_of(node.args[1]))
        if entries is not None:
            self._entries[node.id] = entries
        cost = ONE if overload == "add_list" else ranges.scale(size, STRING_FACTOR)
        return CallEstimate(ranges.add(cost, arguments), size)


def _core_cost(overload: str, target: Operand | None, args: list[Operand]) -> tuple[Range, Range | None]:
    """cel-go's own functions: their cost and, where it is known, the size of the result."""
    if overload == "string_format" and target is not None:
        return ranges.scale(target.size_or_unknown, STRING_FACTOR), None
    if overload in ("string_to_bytes", "bytes_to_string", "strings_quote") and len(args) == 1:
        low, high = args[0].size_or_unknown
        results = {
            "string_to_bytes": (low, high * 4 % 2**64),
            "bytes_to_string": (low // 4, high),
            "strings_quote": (low + 2, (high * 2 + 2) % 2**64),
        }
        return ranges.scale((low, high), STRING_FACTOR), results[overload]
    if overload.startswith(("starts_with_string", "ends_with_string")):
        return ranges.scale(args[0].size_or_unknown, STRING_FACTOR), None
    if overload == "in_list":
        return ranges.scale(args[1].size_or_unknown, 1), None
    if overload in ("matches", "matches_string"):
        text, pattern = (target, args[0]) if target is not None else (args[0], args[1])
        scanned = ranges.scale(ranges.add(text.size_or_unknown, ONE), STRING_FACTOR)
        return ranges.multiply(scanned, ranges.scale(pattern.size_or_unknown, REGEX_FACTOR)), None
    if overload == "contains_string" and target is not None:
        return ranges.multiply(ranges.scale(target.size_or_unknown, STRING_FACTOR), ranges.scale(args[0].size_or_unknown, STRING_FACTOR)), None
    if overload in _ORDER_OVERLOADS or overload in ("equals", "not_equals"):
        most = min(args[0].size_or_unknown[1], args[1].size_or_unknown[1])
        return ranges.scale((1 if most > 0 else 0, most), STRING_FACTOR), None
    return ONE, None


_COSTS: dict[type, Callable[[_Estimator, Any], Range]] = {
    Literal: _Estimator.visit_literal,
    Ident: _Estimator.visit_ident,
    Select: _Estimator.visit_select,
    Call: _Estimator.visit_call,
    ListLiteral: _Estimator.visit_list,
    MapLiteral: _Estimator.visit_map,
    StructLiteral: _Estimator.visit_struct,
    Comprehension: _Estimator.visit_fold,
}
