"""Writes trees as text again (macros as they were written) and values as literals."""

from __future__ import annotations

from typing import Any

from dra_driver.cel.evaluation import conversions, go_text
from dra_driver.cel.evaluation.values import (
    Duration,
    Err,
    ListValue,
    MapValue,
    Message,
    OptionalValue,
    TextMap,
    Timestamp,
    TypeValue,
    Uint,
    Version,
)
from dra_driver.cel.syntax.tree import Call, Entry, Ident, ListLiteral, Literal, MacroCall, MapLiteral, Node, Select, StructLiteral, Tree
from dra_driver.k8s.quantity import Quantity

_BINARY = {
    "_?_:_": 0,
    "_||_": 1,
    "_&&_": 2,
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"), 3),
    **dict.fromkeys(("_+_", "_-_"), 4),
    **dict.fromkeys(("_*_", "_/_", "_%_"), 5),
}
_UNARY, _MEMBER = 6, 7
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def print_tree(tree: Tree, node: Node | None = None) -> str:
    """The whole expression, or one of its parts."""
    return _Printer(tree.macros).text(node or tree.root)


class _Printer:
    def __init__(self, macros: dict[int, MacroCall]) -> None:
        self._macros = macros

    def text(self, node: Node) -> str:
        return self._write(node)[0]

    def _inside(self, node: Node, least: int) -> str:
        """A part, in parentheses where it binds less tightly than `least`."""
        text, strength = self._write(node)
        return text if strength >= least else f"({text})"

    def _write(self, node: Node) -> tuple[str, int]:
        """The text and how tightly its outermost operator binds."""
        if (macro := self._macros.get(node.id)) is not None:
            return self._invocation(macro.function, macro.target, macro.args), _MEMBER
        if isinstance(node, Literal):
            text = print_value(node.value)
            return text, _UNARY if text.startswith("-") else _MEMBER
        if isinstance(node, Ident):
            return node.name, _MEMBER
        if isinstance(node, Select):
            selection = f"{self._inside(node.operand, _MEMBER)}.{_field(node.field)}"
            return (f"has({selection})" if node.test_only else selection), _MEMBER
        if isinstance(node, ListLiteral):
            parts = (f"{'?' if index in node.optional else ''}{self.text(part)}" for index, part in enumerate(node.elements))
            return f"[{', '.join(parts)}]", _MEMBER
        if isinstance(node, MapLiteral):
            return f"{{{', '.join(self._entry(entry, self.text(entry.key)) for entry in node.entries)}}}", _MEMBER
        if isinstance(node, StructLiteral):
            fields = ", ".join(self._entry(entry, _field(entry.key)) for entry in node.fields)
            return f"{node.type_name}{{{fields}}}", _MEMBER
        return self._call(node) if isinstance(node, Call) else ("…", _MEMBER)

    def _entry(self, entry: Entry, key: str) -> str:
        return f"{'?' if entry.optional else ''}{key}: {self.text(entry.value)}"

    def _invocation(self, function: str, target: Node | None, args: list[Node]) -> str:
        receiver = "" if target is None else f"{self._inside(target, _MEMBER)}."
        return f"{receiver}{function}({', '.join(map(self.text, args))})"

    def _call(self, node: Call) -> tuple[str, int]:
        function, args = node.function, node.args
        strength = _BINARY.get(function)
        if function == "_?_:_":
            parts = self._inside(args[0], 1), self._inside(args[1], 1), self._inside(args[2], 0)
            return f"{parts[0]} ? {parts[1]} : {parts[2]}", 0
        if strength is not None:
            logical = function in ("_&&_", "_||_")
            operator = "in" if function == "@in" else function[1:-1]
            left = self._inside(args[0], strength + 1 if logical else strength)
            return f"{left} {operator} {self._inside(args[1], strength + 1)}", strength
        if function in ("!_", "-_"):
            text, inner = self._write(args[0])
            plain = inner == _MEMBER and not (function == "-_" and text[:1] in "0123456789.")
            return f"{function[0]}{text if plain else f'({text})'}", _UNARY
        if function in ("_[_]", "_[?_]"):
            return f"{self._inside(args[0], _MEMBER)}[{'?' if function == '_[?_]' else ''}{self.text(args[1])}]", _MEMBER
        if function == "_?._" and isinstance(args[1], Literal):
            return f"{self._inside(args[0], _MEMBER)}.?{_field(args[1].value)}", _MEMBER
        return self._invocation(function, node.target, args), _MEMBER


def _field(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[:1].isdigit() and name not in ("in", "true", "false", "null")
    return name if plain else f"`{name}`"


def quote_text(text: str) -> str:
    """A string literal."""
    return f"'{''.join(_ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text)}'"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def print_value(value: Any) -> str:
    """A value as one writes it; an error as its text."""
    kind = type(value)
    if isinstance(value, Err):
        return f"error: {value.text}"
    if kind is bool or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if kind is str:
        return quote_text(value)
    if kind is Uint:
        return f"{int(value)}u"
    if kind is float:
        text = repr(value)
        return text if any(char in text for char in ".en") else f"{text}.0"
    if kind is bytes:
        return f"b'{''.join(f'{chr(92)}x{byte:02x}' for byte in value)}'"
    if isinstance(value, ListValue):
        return f"[{', '.join(map(print_value, value))}]"
    if isinstance(value, (MapValue, TextMap)):
        return f"{{{', '.join(f'{print_value(key)}: {print_value(inner)}' for key, inner in value.items())}}}"
    return _print_object(value)


def _print_object(value: Any) -> str:
    if isinstance(value, OptionalValue):
        return f"optional.of({print_value(value.value)})" if value.has_value else "optional.none()"
    if isinstance(value, Message):
        return f"{value.type_name}{{{', '.join(f'{name}: {print_value(inner)}' for name, inner in value.fields.items())}}}"
    if isinstance(value, Quantity):
        return f"quantity({quote_text(str(value))})"
    if isinstance(value, Version):
        return f"semver({quote_text(str(value))})"
    if isinstance(value, (Duration, Timestamp)):
        return f"{'duration' if isinstance(value, Duration) else 'timestamp'}({quote_text(conversions.to_string(value))})"
    return value.name if isinstance(value, TypeValue) else go_text.show(value)
