"""Checks on a typed tree that Kubernetes adds: literal durations, timestamps, patterns and format strings, and literals of one type."""

from __future__ import annotations

from dra_driver.cel.checking.types import Type
from dra_driver.cel.evaluation import conversions
from dra_driver.cel.evaluation.values import Err, PanicError
from dra_driver.cel.functions.regexes import PatternError, compiled
from dra_driver.cel.functions.text_format import FormatProblemError, expand, unfit
from dra_driver.cel.syntax.source import Diagnostic, Source
from dra_driver.cel.syntax.tree import Call, ListLiteral, Literal, MapLiteral, Node, children, walk

_EXEMPT = "format"
_FITTING = {
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"),
    "X": ("int", "uint", "string", "bytes"),
    "o": ("int", "uint"),
    "s": ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"),
}


def validate(root: Node, source: Source) -> list[Diagnostic]:
    """The problems of a tree that the checker accepted."""
    problems: list[Diagnostic] = []
    nodes = walk(root)
    calls = [node for node in nodes if isinstance(node, Call)]
    for function in ("duration", "timestamp", "matches"):
        for call in calls:
            if call.function == function:
                _check_literal(call, source, problems)
    _check_literals_of_one_type(root, source, problems)
    for call in calls:
        _check_format(call, source, problems)
    return problems


def _check_literal(node: Call, source: Source, problems: list[Diagnostic]) -> None:
    """A literal first argument must be a duration, a timestamp or a pattern."""
    if not node.args or not isinstance(node.args[0], Literal):
        return
    value = node.args[0].value
    if node.function == "matches":
        try:
            compiled(value)
        except PatternError:
            problems.append(source.diagnostic("invalid matches argument", node.args[0].pos))
        return
    result = conversions.to_timestamp(value) if node.function == "timestamp" else conversions.to_duration(value)
    if isinstance(result, Err):
        problems.append(source.diagnostic(f"invalid {node.function} argument", node.args[0].pos))


def _check_literals_of_one_type(root: Node, source: Source, problems: list[Diagnostic]) -> None:
    """Elements of a list, keys and values of a map must have the same type, except below a call of `format`."""

    def require(node: Node, expected: Type, found: Type) -> bool:
        fits = expected.same(found, names_of_params=False)
        if not fits:
            problems.append(source.diagnostic(f"expected type '{expected.shown()}' but found '{found.shown()}'", node.pos))
        return fits

    literals = _not_below(root, _EXEMPT)
    for node in literals:
        if isinstance(node, ListLiteral):
            types = [_inner(element.type) if index in node.optional else element.type for index, element in enumerate(node.elements)]
            all(require(element, types[0], t) for element, t in zip(node.elements, types, strict=True))
    for node in literals:
        if isinstance(node, MapLiteral) and node.entries:
            key = node.entries[0].key.type
            values = [_inner(entry.value.type) if entry.optional else entry.value.type for entry in node.entries]
            for entry, value in zip(node.entries, values, strict=True):
                require(entry.key, key, entry.key.type)
                require(entry.value, values[0], value)


def _not_below(root: Node, function: str) -> list[Node]:
    """As `walk`, without what is below calls of a function."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if not (isinstance(node, Call) and node.function == function):
            found.append(node)
            stack += reversed(children(node))
    return found


def _inner(t: Type) -> Type:
    """The type inside an optional. What is only known to be dynamic has none, and Go does not look."""
    if not t.params:
        raise PanicError("runtime error: index out of range [0] with length 0")
    return t.params[0]


class _TypeFormatter:
    """Checks the clauses of a format string against the types of the arguments."""

    def __init__(self, args: list[Node]) -> None:
        self._args = args
        self._current = 0
        self.requested = 0

    @property
    def count(self) -> int:
        return len(self._args)

    def argument(self, index: int) -> None:
        self._current = index
        self.requested += 1

    def clause(self, letter: str, precision: int | None) -> str:  # noqa: ARG002
        node = self._args[self._current]
        culprit = _unprintable(node) if letter == "s" else None if _fits(node, letter) else node
        if culprit is not None:
            raise unfit(letter.lower(), culprit.type.name, culprit)
        return ""


def _fits(node: Node, letter: str) -> bool:
    return node.type.kind == "dyn" or node.type.kind in _FITTING[letter]


def _unprintable(node: Node) -> Node | None:
    """The first part of an argument of %s that cannot be printed."""
    if not _fits(node, "s"):
        return node
    parts = node.elements if isinstance(node, ListLiteral) else children(node) if isinstance(node, MapLiteral) else []
    return next((culprit for part in parts if (culprit := _unprintable(part)) is not None), None)


def _check_format(node: Call, source: Source, problems: list[Diagnostic]) -> None:
    if node.function != "format" or "string_format" not in node.overloads or len(node.args) != 1:
        return
    template, args = node.target, node.args[0]
    if not isinstance(template, Literal) or type(template.value) is not str or not isinstance(args, ListLiteral):
        return
    formatter = _TypeFormatter(args.elements)
    try:
        expand(template.value, formatter)
    except FormatProblemError as problem:
        place = problem.culprit if isinstance(problem.culprit, Node) else node
        problems.append(source.diagnostic(problem.text, place.pos))
        return
    if len(args.elements) > formatter.requested:
        text = f"too many arguments supplied to string.format (expected {formatter.requested}, got {len(args.elements)})"
        problems.append(source.diagnostic(text, node.pos))
