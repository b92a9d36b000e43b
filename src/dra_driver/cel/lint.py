"""Warnings: what compiles and yet is likely not meant, judged by what drivers publish.

A warning says what was found, why it matters, and where it can a text that is better. A rewritten text is offered only after it was compiled and
has selected at least one known device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dra_driver.cel.device import Device
from dra_driver.cel.evaluation.values import Err, Version
from dra_driver.cel.functions import quantities
from dra_driver.cel.reads import ATTRIBUTES, CAPACITY, Read, find_reads, path_step
from dra_driver.cel.syntax.lexer import Token, tokenize
from dra_driver.cel.syntax.printer import quote_text
from dra_driver.cel.syntax.source import Source
from dra_driver.cel.syntax.tree import Call, ListLiteral, Literal, Node, Select, Tree, walk
from dra_driver.errors import CompileError, EvaluationError

_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_KINDS = {"string": "string", "int": "int", "bool": "bool", _SEMVER: "version"}
_STRING_METHODS = frozenset(
    ["startsWith", "endsWith", "contains", "matches", "find", "findAll", "lowerAscii", "upperAscii", "split", "substring", "replace", "trim"]
)
_VERSION_METHODS = frozenset({"major", "minor", "patch"})
_QUANTITY_METHODS = frozenset({"asInteger", "isInteger", "asApproximateFloat", "sign"})
_COMPARISONS = frozenset({"compareTo", "isGreaterThan", "isLessThan", "add", "sub"})
_STRANGER = "driver.example.com"


@dataclass(frozen=True, slots=True)
class SelectorWarning:
    """`kind` groups warnings; `rewritten` selects `matching` of the known devices."""

    kind: str
    message: str
    line: int
    column: int
    rewritten: str | None = None
    matching: int = 0


class Catalogue:
    """What is published: the known devices and the names and types of their attributes and capacities."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices = list(devices)
        self.drivers = {device.driver for device in self.devices}
        self.attributes: dict[tuple[str, str], set[str]] = {}
        self.capacity: set[tuple[str, str]] = set()
        for device in self.devices:
            for domain, values in device.attributes.items():
                for name, value in values.items():
                    self.attributes.setdefault((domain, name), set()).add(_kind(value))
            for domain, amounts in device.capacity.items():
                self.capacity.update((domain, name) for name in amounts)
        self.domains = {domain for domain, _ in (*self.attributes, *self.capacity)}


def _kind(value: Any) -> str:
    return "list" if isinstance(value, tuple) else "version" if isinstance(value, Version) else type(value).__name__.replace("str", "string")


Matcher = Callable[[Device], bool]


def lint(text: str, tree: Tree, catalogue: Catalogue, compile_text: Callable[[str], Matcher]) -> list[SelectorWarning]:
    """All warnings about a selector, in the order of their places. `compile_text` raises CompileError."""
    linter = _Linter(text, tree, catalogue, compile_text)
    found = [*linter.constants(), *linter.always(), *linter.attributes_as_quantities(), *linter.names(), *linter.types(), *linter.guard()]
    return sorted(found, key=lambda warning: (warning.line, warning.column))


class _Linter:
    def __init__(self, text: str, tree: Tree, catalogue: Catalogue, compile_text: Callable[[str], Matcher]) -> None:
        self._text = text
        self._root = tree.root
        self._catalogue = catalogue
        self._compile = compile_text
        self._source = Source(text)
        self._tokens = {token.pos: token for token in tokenize(self._source)}
        self._nodes = walk(tree.root)
        self._reads = list(find_reads(tree.root))
        self._quantity_reads: set[int] = set()

    def _warn(self, kind: str, node: Node, message: str, rewritten: str | None = None) -> SelectorWarning:
        place = self._source.diagnostic("", node.pos)
        for offered in [] if rewritten is None else [rewritten, self._guarded(rewritten)]:
            if offered is not None and (matching := self._matching(offered)):
                return SelectorWarning(kind, message, place.line, place.column, offered, matching)
        return SelectorWarning(kind, message, place.line, place.column)

    def _matching(self, text: str) -> int:
        """How many known devices a text selects; 0 if it fails anywhere."""
        try:
            matches = self._compile(text)
            return sum(map(matches, self._catalogue.devices))
        except (CompileError, EvaluationError):
            return 0

    def _guarded(self, text: str) -> str | None:
        """The text, limited to the one driver whose names it uses."""
        candidates = self._catalogue.drivers or self._catalogue.domains
        drivers = [driver for driver in candidates if quote_text(driver) in text or f'"{driver}"' in text]
        if len(drivers) != 1:
            return None
        simple = not (isinstance(self._root, Call) and self._root.function in ("_||_", "_?_:_"))
        return f"device.driver == {quote_text(drivers[0])} && {text if simple else f'({text})'}"

    def _replace(self, start: int, end: int, new: str) -> str:
        return self._text[:start] + new + self._text[end:]

    def _replace_token(self, node: Node, new: str) -> str | None:
        token = self._tokens.get(node.pos)
        return None if token is None else self._replace(token.pos, token.pos + len(token.text), new)

    # Paths

    def _attribute(self, node: Node) -> tuple[Read, Node] | None:
        """The attribute that a node gives, directly or as an optional that is opened."""
        while isinstance(node, Call) and node.function in ("orValue", "value") and node.target is not None:
            node = node.target
        for read, at in self._reads:
            if at is node and read.map == ATTRIBUTES and read.name is not None:
                return read, at
        return None

    def _as_capacity(self, path: Node) -> str | None:
        """The text with this path's `attributes` replaced by `capacity`."""
        node = path
        while (step := path_step(node)) is not None:
            if isinstance(node, Select) and node.field == ATTRIBUTES:
                match = re.compile(rf"\.\s*{ATTRIBUTES}\b").match(self._text, node.pos)
                return None if match is None else self._replace(match.start(), match.end(), f".{CAPACITY}")
            node = step[0]
        return None

    def _renamed(self, node: Node, name: str) -> str | None:
        """The text with the last step of a path going to another name."""
        if isinstance(node, Call):
            return self._replace_token(node.args[1], quote_text(name) if node.function != "_?._" else name)
        position = node.pos + 1
        token: Token | None = None
        while position < len(self._text) and token is None:
            token = self._tokens.get(position)
            position += 1
        return None if token is None else self._replace(token.pos, token.pos + len(token.text), name if name.isidentifier() else f"`{name}`")

    # Rules

    def constants(self) -> Iterator[SelectorWarning]:
        """Quantities and versions that can never be read."""
        for node in self._nodes:
            if not isinstance(node, Call) or node.function not in ("quantity", "semver") or not all(isinstance(arg, Literal) for arg in node.args):
                continue
            values = [arg.value for arg in node.args if isinstance(arg, Literal)]
            parsed = quantities.quantity(*values) if node.function == "quantity" else quantities.semver(*values)
            if not isinstance(parsed, Err):
                continue
            rewritten = None
            if node.function == "semver" and not isinstance(better := quantities.semver(values[0], True), Err):
                rewritten = self._replace_token(node.args[0], quote_text(str(better)))
            yield self._warn("constant", node, f"{node.function}({quote_text(values[0])}) fails on every device: {parsed.text}", rewritten)

    def always(self) -> Iterator[SelectorWarning]:
        """Selectors that look at nothing, or select nothing that is known."""
        if not self._reads:
            try:
                result = "true" if self._compile(self._text)(Device(_STRANGER, {}, {}, None)) else "false"
            except EvaluationError as error:
                result = f"an error ({error})"
            yield self._warn("always", self._root, f"the expression does not look at the device: it is always {result}")

    def attributes_as_quantities(self) -> Iterator[SelectorWarning]:
        """Attributes that are compared with quantities: those are capacities."""
        for node in self._nodes:
            if not isinstance(node, Call):
                continue
            operands = node.args if node.target is None else [node.target, *node.args]
            is_method = node.function in _QUANTITY_METHODS
            is_pair = (node.function in _COMPARISONS or node.function in ("_==_", "_!=_")) and any(arg.type.name == _QUANTITY for arg in operands)
            for operand in operands if is_pair else operands[:1] if is_method else []:
                if (found := self._attribute(operand)) is None:
                    continue
                read, path = found
                self._quantity_reads.add(path.id)
                message = f"{read} is read as an attribute but used as a quantity, which fails: quantities are published under device.capacity"
                if (read.domain or "", read.name or "") in self._catalogue.capacity:
                    message += f", and {read.domain} publishes {read.name} there"
                yield self._warn("quantity", path, message, self._as_capacity(path))

    def names(self) -> Iterator[SelectorWarning]:
        """Names that nothing publishes."""
        for read, node in self._reads:
            if read.domain is None or not self._catalogue.devices or node.id in self._quantity_reads:
                continue
            if read.domain not in self._catalogue.domains:
                yield self._unknown_domain(read, node)
            elif read.name is not None:
                key = read.domain, read.name
                published: Iterable[tuple[str, str]] = self._catalogue.attributes if read.map == ATTRIBUTES else self._catalogue.capacity
                if key not in published:
                    yield self._unknown_name(read, node, read.name)

    def _unknown_domain(self, read: Read, node: Node) -> SelectorWarning:
        closest = _closest(read.domain or "", self._catalogue.domains)
        at = node if read.name is None else (path_step(node) or (node, None))[0]
        hint = "" if closest is None else f": did you mean {closest!r}?"
        rewritten = None
        if closest is not None and isinstance(at, Call) and at.function in ("_[_]", "_[?_]"):
            rewritten = self._replace_token(at.args[1], quote_text(closest))
        return self._warn("name", at, f"no known device publishes anything under the domain {read.domain!r}{hint}", rewritten)

    def _unknown_name(self, read: Read, node: Node, name: str) -> SelectorWarning:
        what, other = ("attribute", self._catalogue.capacity) if read.map == ATTRIBUTES else ("capacity", set(self._catalogue.attributes))
        if (read.domain or "", name) in other:
            other_what = "a capacity" if read.map == ATTRIBUTES else "an attribute"
            rewritten = self._as_capacity(node) if read.map == ATTRIBUTES else None
            return self._warn("name", node, f"{read.domain} publishes {name} as {other_what}, not as {what}", rewritten)
        same_map: Iterable[tuple[str, str]] = self._catalogue.attributes if read.map == ATTRIBUTES else self._catalogue.capacity
        closest = _closest(name, {published for domain, published in same_map if domain == read.domain})
        hint = "" if closest is None else f": did you mean {closest!r}?"
        rewritten = None if closest is None else self._renamed(node, closest)
        return self._warn("name", node, f"no known device has the {what} {name!r} of {read.domain}{hint}", rewritten)

    def types(self) -> Iterator[SelectorWarning]:
        """Attributes that are published with another type than the one they are used with."""
        for node in self._nodes:
            if isinstance(node, Call):
                for operand, wanted, literal in _uses(node):
                    found = self._attribute(operand)
                    if found is None:
                        continue
                    read, path = found
                    kinds = self._catalogue.attributes.get((read.domain or "", read.name or ""), set())
                    if kinds and wanted not in kinds:
                        shown = " or ".join(sorted(kinds))
                        yield self._warn(
                            "type", path, f"{read} is published as {shown} but used as {wanted}", self._with_version(kinds, wanted, literal)
                        )

    def _with_version(self, kinds: set[str], wanted: str, literal: Node | None) -> str | None:
        """A text compared with a version becomes a version."""
        if kinds != {"version"} or wanted != "string" or not isinstance(literal, Literal):
            return None
        return self._replace_token(literal, f"semver({quote_text(literal.value)})")

    def guard(self) -> Iterator[SelectorWarning]:
        """Selectors that fail on the devices of other drivers: one such device on a node stops the scheduling of the pod."""
        try:
            self._compile(self._text)(Device(_STRANGER, {}, {}, None))
        except EvaluationError as error:
            if "no such key" not in str(error):
                return
            message = f"fails with {str(error)!r} on any device without it, so that one device of another driver stops the scheduling of the pod"
            yield self._warn("guard", self._root, message, self._guarded(self._text))


def _uses(node: Call) -> Iterator[tuple[Node, str, Node | None]]:
    """Operands that must be of a certain type, and the literal that says so."""
    if node.function in ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_") and len(node.args) == 2:
        for operand, other in (node.args, node.args[::-1]):
            wanted = _KINDS.get(other.type.name)
            if wanted is not None:
                yield operand, wanted, other
    elif node.function == "@in" and isinstance(node.args[1], ListLiteral) and node.args[1].elements:
        wanted = _KINDS.get(node.args[1].elements[0].type.name)
        if wanted is not None:
            yield node.args[0], wanted, None
    elif node.target is not None and node.function in _STRING_METHODS:
        yield node.target, "string", None
    elif node.target is not None and (node.function in _VERSION_METHODS or (node.args and node.args[0].type.name == _SEMVER)):
        yield node.target, "version", None


def _closest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the fewest edits, if they are few."""
    scored = sorted((_distance(name.lower(), candidate.lower()), candidate) for candidate in known)
    return scored[0][1] if scored and scored[0][0] <= max(1, len(name) // 3) else None


def _distance(left: str, right: str) -> int:
    """Levenshtein's edit distance."""
    previous = list(range(len(right) + 1))
    for row, mine in enumerate(left, 1):
        current = [row]
        for column, theirs in enumerate(right, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (mine != theirs)))
        previous = current
    return previous[-1]
