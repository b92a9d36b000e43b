"""The type checker: gives every node its static type and every call its candidate overloads, or says what does not fit.

The rules are cel-go's, its order of checks included, so that several problems in one expression are reported alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dra_driver.cel.checking import types
from dra_driver.cel.checking.messages import well_known_name
from dra_driver.cel.checking.signatures import Function, Overload
from dra_driver.cel.checking.types import DYN, ERROR, Type, is_dyn, unwrap_optional
from dra_driver.cel.checking.unify import Bindings, may_agree, most_general
from dra_driver.cel.evaluation.values import Uint
from dra_driver.cel.syntax.source import Diagnostic, Source
from dra_driver.cel.syntax.tree import Broken, Call, Comprehension, Entry, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral

_LITERAL_TYPES: dict[type, Type] = {
    bool: types.BOOL,
    bytes: types.BYTES,
    float: types.DOUBLE,
    int: types.INT,
    type(None): types.NULL,
    str: types.STRING,
    Uint: types.UINT,
}


class Declarations(Protocol):
    """What an environment declares."""

    @property
    def functions(self) -> Mapping[str, Function]:
        """By name."""

    def global_name(self, name: str) -> Type | None:
        """The type of a variable or type name."""

    def message_type(self, name: str) -> Type | None:
        """The type that `name{…}` makes."""

    def is_message(self, name: str) -> bool:
        """Whether there is a message type of that name."""

    def field_type(self, message: str, field: str) -> Type | None:
        """The type of a message's field; None where there is no such field."""


def check(root: Node, source: Source, declarations: Declarations) -> list[Diagnostic]:
    """Types the tree in place; returns the problems."""
    checker = _Checker(source, declarations)
    checker.check(root)
    checker.settle()
    return checker.problems


def qualified_name(node: Node) -> str | None:
    """`a.b.c`, if the node is written so."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


class _Checker:
    def __init__(self, source: Source, declarations: Declarations) -> None:
        self.problems: list[Diagnostic] = []
        self._source = source
        self._declarations = declarations
        self._bindings = Bindings()
        self._scopes: list[dict[str, Type]] = []
        self._variables = 0
        self._typed: list[Node] = []

    def settle(self) -> None:
        """Replaces what is left of type parameters."""
        for node in self._typed:
            if node.type.generic:
                node.type = self._bindings.substitute(node.type, unbound_to_dyn=True)

    def check(self, node: Node) -> None:
        _CHECKS[type(node)](self, node)

    def _set(self, node: Node, t: Type) -> None:
        node.type = t
        self._typed.append(node)

    def _report(self, node: Node | Entry, message: str) -> None:
        self.problems.append(self._source.diagnostic(message, node.pos))

    def _mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self._report(node, f"expected type '{expected.shown()}' but found '{found.shown()}'")

    def _undeclared(self, node: Node, name: str) -> None:
        self._report(node, f"undeclared reference to '{name}' (in container '')")
        self._set(node, ERROR)

    def _new_variable(self) -> Type:
        self._variables += 1
        return types.parameter(f"_var{self._variables - 1}")

    # Names and fields

    def _local(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def visit_literal(self, node: Literal) -> None:
        self._set(node, _LITERAL_TYPES[type(node.value)])

    def visit_broken(self, node: Broken) -> None:
        self._set(node, ERROR)

    def visit_ident(self, node: Ident) -> None:
        bare = node.name.removeprefix(".")
        local = self._local(bare)
        if local is not None and bare == node.name:
            self._set(node, local)
            return
        found = self._declarations.global_name(bare)
        if found is None:
            self._undeclared(node, node.name)
            return
        node.name = f".{bare}" if local is not None else bare
        self._set(node, found)

    def visit_select(self, node: Select) -> None:
        name = None if node.test_only else qualified_name(node)
        if name is not None:
            first = name.removeprefix(".").split(".", 1)[0]
            local = self._local(first) is not None
            found = None if local and not name.startswith(".") else self._declarations.global_name(name.removeprefix("."))
            if found is not None:
                bare = name.removeprefix(".")
                node.qualified = Ident(node.id, node.pos, f".{bare}" if local else bare)
                self._set(node.qualified, found)
                self._set(node, found)
                return
        result = self._field(node, node.operand, node.field, optional=False)
        self._set(node, types.BOOL if node.test_only else self._bindings.substitute(result))

    def _field(self, node: Node, operand: Node, field: str, *, optional: bool) -> Type:
        self.check(operand)
        target, was_optional = unwrap_optional(self._bindings.substitute(operand.type))
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            result = self._field_type(node, target.name, field) or ERROR
        else:
            if target.kind == "param":
                self._bindings.assignable(DYN, target)
            elif not is_dyn(target) and target.kind != "error":
                self._report(node, f"type '{target.shown()}' does not support field selection")
            result = DYN
        return types.optional_of(result) if was_optional or optional else result

    def _field_type(self, node: Node | Entry, message: str, field: str) -> Type | None:
        if not self._declarations.is_message(message):
            self._report(node, f"unexpected failed resolution of '{message}'")
            return None
        found = self._declarations.field_type(message, field)
        if found is None:
            self._report(node, f"undefined field '{field}'")
        return found

    # Calls

    def visit_call(self, node: Call) -> None:
        if node.function == "_?._":
            field = node.args[1]
            name = field.value if isinstance(field, Literal) else ""
            result = self._field(node, node.args[0], name, optional=True)
            self._set(node, self._bindings.substitute(result))
            node.overloads = ("select_optional_field",)
            field.type = types.STRING
            return
        for arg in node.args:
            self.check(arg)
        functions = self._declarations.functions
        if node.target is None:
            function = functions.get(node.function.removeprefix("."))
            if function is None:
                self._undeclared(node, node.function)
            else:
                node.function = function.name
                self._resolve(node, function)
            return
        prefix = qualified_name(node.target)
        if prefix is not None and (function := functions.get(f"{prefix}.{node.function}".removeprefix("."))) is not None:
            node.target, node.function = None, function.name
            self._resolve(node, function)
            return
        self.check(node.target)
        function = functions.get(node.function)
        if function is None:
            self._undeclared(node, node.function)
        else:
            self._resolve(node, function)

    def _resolve(self, node: Call, function: Function) -> None:
        member = node.target is not None
        operands = node.args if node.target is None else [node.target, *node.args]
        if function.name in ("_&&_", "_||_"):
            self._resolve_logical(node)
            return
        arg_types = [operand.type for operand in operands]
        result: Type | None = None
        found: list[str] = []
        for overload in function.overloads:
            if overload.member != member:
                continue
            if len(overload.args) != len(arg_types) or not all(map(may_agree, arg_types, overload.args)):
                self._variables += len(overload.params)  # the names of type variables show in error texts
                continue
            args, overload_result = self._instance(overload)
            if not self._bindings.all_assignable(arg_types, args):
                continue
            found.append(overload.id)
            this = self._bindings.substitute(overload_result)
            if result is None:
                result = this
            elif not is_dyn(result) and not this.same(result):
                result = DYN
        if result is None:
            shown = [self._bindings.substitute(t, unbound_to_dyn=True).shown() for t in arg_types]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            self._report(node, f"found no matching overload for '{function.name}' applied to '{signature}'")
            self._set(node, ERROR)
            return
        node.overloads = tuple(found)
        self._set(node, result)

    def _resolve_logical(self, node: Call) -> None:
        result = types.BOOL
        for arg in node.args:
            if not self._bindings.assignable(arg.type, types.BOOL):
                self._mismatch(arg, types.BOOL, arg.type)
                result = ERROR
        node.overloads = ("logical_and" if node.function == "_&&_" else "logical_or",)
        self._set(node, result)

    def _instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """The overload with fresh type variables."""
        if not overload.params:
            return overload.args, overload.result
        fresh = Bindings({name: self._new_variable() for name in sorted(overload.params)})
        return tuple(fresh.substitute(arg) for arg in overload.args), fresh.substitute(overload.result)

    # Literals of several parts

    def _element(self, value: Node, *, optional: bool) -> Type:
        """The type that an element or entry contributes."""
        self.check(value)
        return self._item(value, optional=optional)

    def _item(self, value: Node, *, optional: bool) -> Type:
        if not optional:
            return value.type
        inner, was_optional = unwrap_optional(value.type)
        if not was_optional and not is_dyn(inner):
            self._mismatch(value, types.optional_of(inner), inner)
        return inner

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return most_general(previous, current) if self._bindings.assignable(previous, current) else DYN

    def visit_list(self, node: ListLiteral) -> None:
        element: Type | None = None
        for index, value in enumerate(node.elements):
            element = self._join(element, self._element(value, optional=index in node.optional))
        self._set(node, types.list_of(element or self._new_variable()))

    def visit_map(self, node: MapLiteral) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._join(key, entry.key.type)
            value = self._join(value, self._element(entry.value, optional=entry.optional))
        self._set(node, types.map_of(key or self._new_variable(), value or self._new_variable()))

    def visit_struct(self, node: StructLiteral) -> None:
        name = node.type_name.removeprefix(".")
        made = self._declarations.message_type(name)
        if made is None:
            self._undeclared(node, node.type_name)
            return
        node.type_name = name
        if (known := well_known_name(made)) is not None:
            name = known
        elif made.kind != "struct":
            self._report(node, f"'{made.declared_name}' is not a message type")
            made = ERROR
        self._set(node, made)
        for entry in node.fields:
            self.check(entry.value)
            expected = self._field_type(entry, name, entry.key)
            found = self._item(entry.value, optional=entry.optional)
            if expected is not None and not self._bindings.assignable(expected, found):
                shown = f"'{expected.shown()}' but provided type is '{found.shown()}'"
                self._report(entry, f"expected type of field '{entry.key}' is {shown}")

    def visit_comprehension(self, node: Comprehension) -> None:
        self.check(node.iter_range)
        self.check(node.accu_init)
        over = self._bindings.substitute(node.iter_range.type)
        accumulated = node.accu_init.type
        self._scopes.append({node.accu_var: accumulated})
        first, second = self._loop_types(node, over)
        self._scopes.append({node.iter_var: first, node.iter_var2: second} if node.iter_var2 else {node.iter_var: first})
        self.check(node.condition)
        self._assert(node.condition, types.BOOL)
        self.check(node.step)
        self._assert(node.step, accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        self._set(node, self._bindings.substitute(node.result.type))

    def _loop_types(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        if over.kind == "list":
            return (types.INT, over.params[0]) if node.iter_var2 else (over.params[0], DYN)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self._bindings.assignable(DYN, over)
            return DYN, DYN
        self._report(node.iter_range, f"expression of type '{over.shown()}' cannot be range of a comprehension (must be list, map, or dynamic)")
        return ERROR, ERROR

    def _assert(self, node: Node, expected: Type) -> None:
        if not self._bindings.assignable(expected, node.type):
            self._mismatch(node, expected, node.type)


_CHECKS: dict[type, Callable[[_Checker, Any], None]] = {
    Literal: _Checker.visit_literal,
    Ident: _Checker.visit_ident,
    Select: _Checker.visit_select,
    Call: _Checker.visit_call,
    ListLiteral: _Checker.visit_list,
    MapLiteral: _Checker.visit_map,
    StructLiteral: _Checker.visit_struct,
    Comprehension: _Checker.visit_comprehension,
    Broken: _Checker.visit_broken,
}
