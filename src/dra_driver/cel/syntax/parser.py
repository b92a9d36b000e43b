"""Recursive descent over the CEL grammar: text in, syntax tree out, with every problem at the place where cel-go reports it.

The grammar's rules nest as in cel-go's generated parser, because its two nesting limits count them: 250 open rules of one kind while reading
(`Reader._enter`), and 250 nested operators, selections, indexes and member calls in the result (`Reader._above`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.cel.evaluation.values import Uint
from dra_driver.cel.syntax import literals
from dra_driver.cel.syntax.lexer import Token, tokenize
from dra_driver.cel.syntax.macros import Expander, Macro, MacroError
from dra_driver.cel.syntax.reader import Reader
from dra_driver.cel.syntax.recursion import make_room
from dra_driver.cel.syntax.source import Source, SyntaxProblemError
from dra_driver.cel.syntax.tree import Call, Entry, Ident, ListLiteral, Literal, MacroCall, MapLiteral, Node, Select, StructLiteral, Tree

MAX_CODE_POINTS = 100_000

_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "%"})


def parse(source: Source, macros: Mapping[tuple[str, int, bool], Macro]) -> Tree:
    """Reads an expression. Raises SyntaxProblemError with every problem that cel-go's parser reports after the first syntax error, if any."""
    tokens = tokenize(source)
    parser = _Parser(source, tokens, macros)
    root = parser.whole()
    if parser.problems:
        raise SyntaxProblemError(parser.problems)
    return Tree(root, parser.macro_calls, parser.nesting)


class _Parser(Reader):
    def __init__(self, source: Source, tokens: list[Token], macros: Mapping[tuple[str, int, bool], Macro]) -> None:
        super().__init__(source, tokens)
        self.macro_calls: dict[int, MacroCall] = {}
        self._macros = macros

    def whole(self) -> Node:
        root = self._expression()
        if self._token.kind != "end":
            self._unexpected("<EOF>")
        self.nesting += self._height
        make_room(self.nesting)
        return root

    # Operators, loosest first

    def _expression(self) -> Node:
        self._enter("expr")
        node = self._logical("||")
        if question := self._accept("?"):
            condition_height = self._height
            call_id = self.new_id()
            when_true = self._logical("||")
            true_height = self._height
            self._expect(":")
            when_false = self._expression()
            self._above(condition_height, true_height, self._height)
            node = Call(call_id, question.pos, "_?_:_", None, [node, when_true, when_false])
        self._leave("expr")
        return node

    def _logical(self, operator: str) -> Node:
        first = self._logical("&&") if operator == "||" else self._relation()
        if self._token.kind != operator:
            return first
        terms, operators = [first], []
        height = self._height
        while token := self._accept(operator):
            terms.append(self._logical("&&") if operator == "||" else self._relation())
            operators.append((self.new_id(), token.pos))
            height = max(height, self._height)
        self._height = height
        return _balanced(f"_{operator}_", terms, operators, 0, len(operators) - 1)

    def _relation(self) -> Node:
        self._enter("relation")
        node = self._calc(0)
        while self._token.kind in _RELATIONS:
            token = self._advance()
            left_height = self._height
            call_id = self.new_id()
            self._enter("relation")
            right = self._calc(0)
            self._leave("relation")
            self._above(left_height, self._height)
            node = Call(call_id, token.pos, "@in" if token.kind == "in" else f"_{token.kind}_", None, [node, right])
        self._leave("relation")
        return node

    def _calc(self, precedence: int) -> Node:
        self._enter("calc")
        node = self._unary()
        while (product := self._token.kind in _PRODUCTS and precedence <= 2) or (self._token.kind in _SUMS and precedence <= 1):
            token = self._advance()
            left_height = self._height
            call_id = self.new_id()
            right = self._calc(3 if product else 2)
            self._above(left_height, self._height)
            node = Call(call_id, token.pos, f"_{token.kind}_", None, [node, right])
        self._leave("calc")
        return node

    def _unary(self) -> Node:
        kind = self._token.kind
        if kind not in ("!", "-"):
            return self._member(self._primary())
        first = self._advance()
        if kind == "-" and self._token.kind in ("int", "float"):
            return self._member(self.read_number(first))
        count = 1
        while self._accept(kind):
            count += 1
        if count % 2 == 0:
            return self._member(self._primary())
        call_id = self.new_id()
        operand = self._member(self._primary())
        return Call(call_id, first.pos, f"{kind}_", None, [operand])

    # Members

    def _member(self, node: Node) -> Node:
        while True:
            if dot := self._accept("."):
                node = self._selection(node, dot)
            elif bracket := self._accept("["):
                operand_height = self._height
                call_id = self.new_id()
                function = "_[?_]" if self._accept("?") else "_[_]"
                index = self._expression()
                self._expect("]")
                self._above(operand_height, self._height)
                node = Call(call_id, bracket.pos, function, None, [node, index])
            else:
                return node

    def _selection(self, operand: Node, dot: Token) -> Node:
        operand_height = self._height
        optional = self._accept("?")
        name = self._field_name()
        parenthesis = None if optional or name.kind == "escaped" else self._accept("(")
        if parenthesis is None:
            self._above(operand_height)
            if not optional:
                return Select(self.new_id(), dot.pos, operand, _plain(name))
            field = Literal(self.new_id(), name.pos, _plain(name))
            return Call(self.new_id(), dot.pos, "_?._", None, [operand, field])
        call_id = self.new_id()
        args = self._arguments()
        self._above(operand_height, self._height)
        return self._call(call_id, parenthesis.pos, name.text, operand, args)

    def _field_name(self) -> Token:
        if self._token.kind not in ("ident", "escaped"):
            self._unexpected("IDENTIFIER")
        return self._advance()

    def _arguments(self) -> list[Node]:
        args: list[Node] = []
        height = 0
        while not self._accept(")"):
            if args:
                self._expect(",")
            args.append(self._expression())
            height = max(height, self._height)
        self._height = height
        return args

    def _call(self, call_id: int, pos: int, function: str, target: Node | None, args: list[Node]) -> Node:
        macro = self._macros.get((function, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro(Expander(self.new_id, pos), target, args)
            except MacroError as error:
                return self._report(error.message, error.pos)
            if expanded is not None:
                self.macro_calls[expanded.id] = MacroCall(function, target, args)
                return expanded
        return Call(call_id, pos, function, target, args)

    # Primaries

    def _primary(self) -> Node:
        token = self._token
        self._height = 0
        if read := _PRIMARIES.get(token.kind):
            return read(self)
        if token.kind == "-" and self._tokens[self._next + 1].kind in ("int", "float"):
            return self.read_number(self._advance())
        return self._unexpected("an expression")

    def read_name(self) -> Node:
        first = self._token
        leading = "." if self._accept(".") else ""
        name = self._expect("ident")
        if parts := self._message_name():
            return self._message(leading + ".".join([name.text, *parts]))
        if name.text in _RESERVED:
            if self._accept("("):
                self._arguments()
                self._height = 0
            return self._report(f"reserved identifier: {name.text}", first.pos)
        if parenthesis := self._accept("("):
            call_id = self.new_id()
            return self._call(call_id, parenthesis.pos, leading + name.text, None, self._arguments())
        return Ident(self.new_id(), name.pos, leading + name.text)

    def _message_name(self) -> list[str] | None:
        """The further parts of `a.b.c{`, if that is what follows; [""] marks no further part."""
        tokens, index = self._tokens, self._next
        parts: list[str] = []
        while tokens[index].kind == "." and tokens[index + 1].kind == "ident":
            parts.append(tokens[index + 1].text)
            index += 2
        if tokens[index].kind != "{":
            return None
        self._next = index
        self._token = tokens[index]
        return parts or [""]

    def _message(self, name: str) -> Node:
        brace = self._advance()
        node = StructLiteral(self.new_id(), brace.pos, name.removesuffix("."), [])
        height = 0
        while (item := self._item(bool(node.fields), "}")) is not None:
            field = self._field_name()
            colon = self._expect(":")
            value = self._expression()
            node.fields.append(Entry(colon.pos, _plain(field), value, item))
            height = max(height, self._height)
        self._height = height
        return node

    def _item(self, started: bool, closing: str) -> bool | None:
        """Steps to the next item of a list, map or message: whether it is optional, or None after the closing bracket."""
        comma = self._accept(",") if started or self._token.kind == "," else None
        if self._accept(closing):
            return None
        if (started and comma is None) or (not started and comma is not None):
            self._unexpected(f"'{closing}'")
        return self._accept("?") is not None

    def read_nested(self) -> Node:
        self._advance()
        node = self._expression()
        self._expect(")")
        return node

    def read_list(self) -> Node:
        bracket = self._advance()
        node_id = self.new_id()
        elements: list[Node] = []
        optional: set[int] = set()
        height = 0
        while (item := self._item(bool(elements), "]")) is not None:
            if item:
                optional.add(len(elements))
            elements.append(self._expression())
            height = max(height, self._height)
        self._height = height
        return ListLiteral(node_id, bracket.pos, elements, frozenset(optional))

    def read_map(self) -> Node:
        brace = self._advance()
        node = MapLiteral(self.new_id(), brace.pos, [])
        height = 0
        while (item := self._item(bool(node.entries), "}")) is not None:
            key = self._expression()
            height = max(height, self._height)
            colon = self._expect(":")
            value = self._expression()
            height = max(height, self._height)
            node.entries.append(Entry(colon.pos, key, value, item))
        self._height = height
        return node

    def read_number(self, sign: Token | None = None) -> Node:
        token = self._advance()
        self._height = 0
        pos = sign.pos if sign else token.pos
        text = f"-{token.text}" if sign else token.text
        try:
            value: Any = literals.parse_float(text) if token.kind == "float" else literals.parse_int(text)
        except ValueError as error:
            return self._report(str(error), pos)
        return Literal(self.new_id(), pos, value)

    def read_uint(self) -> Node:
        token = self._advance()
        try:
            return Literal(self.new_id(), token.pos, Uint(literals.parse_uint(token.text[:-1])))
        except ValueError as error:
            return self._report(str(error), token.pos)

    def read_text(self) -> Node:
        token = self._advance()
        try:
            value: Any = literals.unescape_bytes(token.text[1:]) if token.kind == "bytes" else literals.unescape_string(token.text)
        except ValueError as error:
            return self._report(str(error), token.pos)
        return Literal(self.new_id(), token.pos, value)

    def read_keyword(self) -> Node:
        token = self._advance()
        return Literal(self.new_id(), token.pos, {"true": True, "false": False, "null": None}[token.kind])


_PRIMARIES = {
    "int": _Parser.read_number,
    "float": _Parser.read_number,
    "uint": _Parser.read_uint,
    "string": _Parser.read_text,
    "bytes": _Parser.read_text,
    "true": _Parser.read_keyword,
    "false": _Parser.read_keyword,
    "null": _Parser.read_keyword,
    "ident": _Parser.read_name,
    ".": _Parser.read_name,
    "(": _Parser.read_nested,
    "[": _Parser.read_list,
    "{": _Parser.read_map,
}


def _plain(name: Token) -> str:
    return name.text[1:-1] if name.kind == "escaped" else name.text


def _balanced(function: str, terms: list[Node], operators: list[tuple[int, int]], low: int, high: int) -> Node:
    """A chain of && or || as a balanced tree, so that a long chain is not deep."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, operators, middle + 1, high)
    node_id, pos = operators[middle]
    return Call(node_id, pos, function, None, [left, right])
