"""Splits an expression into tokens, by the lexer rules of the CEL grammar."""

from __future__ import annotations

import re
from typing import NamedTuple

from dra_driver.cel.syntax.source import Source, SyntaxProblemError


class Token(NamedTuple):
    """`kind` is one of int, uint, float, string, bytes, ident, escaped, end; for operators and keywords it is the text itself."""

    kind: str
    text: str
    pos: int


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING = rf"""
    (?: [rR] (?: \"\"\"(?s:.)*?\"\"\" | '''(?s:.)*?''' | "[^"\n\r]*" | '[^'\n\r]*' )
    | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"
    | '''(?:{_ESCAPE}|[^\\])*?'''
    | "(?:{_ESCAPE}|[^\\"\n\r])*"
    | '(?:{_ESCAPE}|[^\\'\n\r])*'
    )"""

_TOKEN = re.compile(
    rf"""
    (?P<operator> \.(?![0-9]) | == | != | <= | >= | && | \|\| | [<>\[\]{{}}(),\-!?:+*%] | /(?!/) )
    | (?P<skip> [\t \r\n\f]+ | //[^\n]* )
    | (?P<bytes> [bB] {_STRING} )
    | (?P<string> {_STRING} )
    | (?P<float> [0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ | \.[0-9]+(?:[eE][+-]?[0-9]+)? )
    | (?P<uint> 0x[0-9a-fA-F]+[uU] | [0-9]+[uU] )
    | (?P<int> 0x[0-9a-fA-F]+ | [0-9]+ )
    | (?P<ident> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<escaped> `[A-Za-z0-9_./ -]+` )
    """,
    re.VERBOSE,
)

_KEYWORDS = frozenset({"in", "true", "false", "null"})


def tokenize(source: Source) -> list[Token]:
    """All tokens and a last one of kind `end`. Raises SyntaxProblemError at the first character that starts no token."""
    text = source.text
    tokens: list[Token] = []
    pos = 0
    match = _TOKEN.match
    while found := match(text, pos):
        kind = found.lastgroup or ""
        if kind != "skip":
            word = found[0]
            if kind == "operator" or word in _KEYWORDS:
                kind = word
            tokens.append(Token(kind, word, pos))
        pos = found.end()
    if pos < len(text):
        raise SyntaxProblemError([source.diagnostic(f"Syntax error: token recognition error at: '{text[pos]}'", pos)])
    tokens.append(Token("end", "<EOF>", pos))
    return tokens
