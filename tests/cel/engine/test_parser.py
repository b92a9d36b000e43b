"""The parser: where problems are reported, what literals mean, how deep expressions may be, and that printing is its inverse."""

from __future__ import annotations

import pytest

from dra_driver.cel import CompileError, Environment
from dra_driver.cel.environment import _define
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.syntax.printer import print_tree
from dra_driver.cel.syntax.source import Source, SyntaxProblemError
from dra_driver.cel.syntax.tree import Comprehension, Literal, Node, Tree, children, walk
from tests.cel.engine.expressions import Generator

ENVIRONMENT = Environment()
MACROS = _define((1, 37), True, True, False).macros


def tree_of(text: str) -> Tree:
    return parse(Source(text), MACROS)


def shape(node: Node) -> object:
    """A tree without numbers and places."""
    names = ("value", "name", "field", "function", "type_name", "test_only", "iter_var", "accu_var")
    fields = [getattr(node, name) for name in names if hasattr(node, name)]
    kinds = [(type(field), field) for field in fields]
    return type(node).__name__, kinds, [shape(child) for child in children(node)]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_printed_parses_to_the_same_tree(seed: int) -> None:
    generator = Generator(seed)
    for _ in range(250):
        try:
            tree = tree_of(generator.selector())
        except SyntaxProblemError:
            continue
        assert shape(tree_of(print_tree(tree)).root) == shape(tree.root)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a.b", (1, 1), "undeclared reference to 'a' (in container '')"),
        ("true &&\n  nope", (2, 3), "undeclared reference to 'nope' (in container '')"),
        ("'é' == nope", (1, 8), "undeclared reference to 'nope' (in container '')"),
        ("device.driver == 1", (1, 15), "found no matching overload for '_==_' applied to '(string, int)'"),
        ("as", (1, 1), "reserved identifier: as"),
        ("9223372036854775808 == 0", (1, 1), "invalid int literal"),
        ("[1].all(1, true)", (1, 9), "argument must be a simple name"),
    ],
)
def test_a_problem_stands_at_its_place(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(CompileError) as error:
        ENVIRONMENT.compile(text)
    diagnostic = error.value.diagnostics[0]
    assert (diagnostic.line, diagnostic.column) == place  # type: ignore[attr-defined]
    assert diagnostic.message == message  # type: ignore[attr-defined]
    assert str(error.value).startswith(f"compilation failed: ERROR: <input>:{place[0]}:{place[1]}: {message}\n | ")


def test_several_problems_are_all_reported_in_order() -> None:
    with pytest.raises(CompileError) as error:
        ENVIRONMENT.compile("b == a || device.nope")
    assert [line for line in str(error.value).splitlines() if "ERROR" in line] == [
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'b' (in container '')",
        "ERROR: <input>:1:6: undeclared reference to 'a' (in container '')",
        "ERROR: <input>:1:17: undefined field 'nope'",
    ]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'a'", "a"),
        ('"a\'b"', "a'b"),
        ("'''a'\n'''", "a'\n"),
        (r"r'\n'", "\\n"),
        (r"'\u00e9\x41\101\?\`'", "éAA?`"),
        (r"b'\xff\377é'", b"\xff\xff\xc3\xa9"),
        (r"br'\x'", b"\\x"),
        ("'a\rb'", None),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        ("0x10", 16),
        ("-0x10", -16),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615u", 2**64 - 1),
        ("1.5e2", 150.0),
        (".5", 0.5),
        ("1e400", None),
        (r"'\ud800'", None),
    ],
)
def test_literals(literal: str, value: object) -> None:
    if value is None:
        with pytest.raises(CompileError):
            ENVIRONMENT.compile(f"{literal} == {literal}")
        return
    root = tree_of(literal).root
    assert isinstance(root, Literal)
    assert root.value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 249 + "true" + ")" * 249, None),
        ("(" * 250 + "true" + ")" * 250, "expression recursion limit exceeded: 250"),
        ("[" * 249 + "]" * 249 + " == []", None),
        ("(1 < " * 130 + "2" + ")" * 130 + " == true", "expression recursion limit exceeded: 250"),
        ("1" + " + 1" * 249 + " == 0", None),
        ("1" + " + 1" * 250 + " == 0", "max recursion depth exceeded"),
        ("true" + " && true" * 1000, None),
        ("device" + ".a" * 251, "max recursion depth exceeded"),
        ("!" * 1000 + "true", None),
    ],
)
def test_nesting_is_limited_where_go_limits_it(text: str, message: str | None) -> None:
    if message is None:
        ENVIRONMENT.compile(text)
    else:
        with pytest.raises(CompileError) as error:
            ENVIRONMENT.compile(text)
        assert str(error.value) == f"compilation failed: ERROR: <input>:-1:0: {message}"


def test_signs_belong_to_numbers_where_they_can() -> None:
    for text in ("--1 == 1", "!(-1 == 1)", "1 - -1 == 2", "-(-1) == 1", "1 -1 == 0"):
        assert ENVIRONMENT.compile(text).result_type == "bool"
    with pytest.raises(CompileError, match="Syntax error"):
        ENVIRONMENT.compile("!-x == 1")


def test_macros_become_comprehensions_and_keep_what_was_written() -> None:
    tree = tree_of("[1].exists(x, x == 1)")
    assert isinstance(tree.root, Comprehension)
    assert tree.macros[tree.root.id].function == "exists"
    assert not any(isinstance(node, Comprehension) for node in walk(tree_of("a.exists(x)").root))
