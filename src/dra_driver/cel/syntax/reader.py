"""What a recursive-descent parser stands on: the next token, numbers for nodes, the problems found, and the two limits of nesting."""

from __future__ import annotations

from typing import NoReturn

from dra_driver.cel.syntax.lexer import Token
from dra_driver.cel.syntax.recursion import make_room
from dra_driver.cel.syntax.source import NOWHERE, Diagnostic, Source, SyntaxProblemError
from dra_driver.cel.syntax.tree import Broken

MAX_NESTING = 250

_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


class Reader:
    """Reads tokens one by one."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.problems: list[Diagnostic] = []
        self.nesting = _bracket_depth(tokens)
        self._source = source
        self._tokens = tokens
        self._next = 0
        self._token = tokens[0]
        self._last_id = 0
        self._open = {"expr": 0, "relation": 0, "calc": 0}
        self._height = 0
        make_room(self.nesting)

    def _advance(self) -> Token:
        token = self._token
        self._next += 1
        self._token = self._tokens[self._next]
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self._token.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._token.kind != kind:
            self._unexpected(f"'{kind}'" if kind not in ("ident", "string") else "IDENTIFIER")
        return self._advance()

    def _unexpected(self, wanted: str) -> NoReturn:
        found = self._token
        raise SyntaxProblemError(
            [*self.problems, self._source.diagnostic(f"Syntax error: mismatched input '{found.text}' expecting {wanted}", found.pos)]
        )

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _report(self, message: str, pos: int) -> Broken:
        self.problems.append(self._source.diagnostic(message, pos))
        return Broken(self.new_id(), pos)

    def _enter(self, rule: str) -> None:
        self._open[rule] += 1
        if self._open[rule] > MAX_NESTING:
            raise SyntaxProblemError([*self.problems, self._source.diagnostic(f"expression recursion limit exceeded: {MAX_NESTING}", NOWHERE)])

    def _leave(self, rule: str) -> None:
        self._open[rule] -= 1

    def _above(self, *heights: int) -> None:
        self._height = max(heights) + 1
        if self._height > MAX_NESTING:
            raise SyntaxProblemError([*self.problems, self._source.diagnostic("max recursion depth exceeded", NOWHERE)])


def _bracket_depth(tokens: list[Token]) -> int:
    depth = deepest = 0
    for token in tokens:
        if token.kind in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token.kind in _CLOSING:
            depth -= 1
    return deepest
