"""The CEL environments of Dynamic Resource Allocation: what a selector may use, by Kubernetes version.

Two of them matter. The API server admits *new* expressions with what the previous minor version knows already and the feature gates allow;
the scheduler evaluates *stored* ones with everything that ever was. 1.37 is reproduced exactly. 1.34 to 1.36 differ from it as far as the
tables of `checking.libraries` and `_Definition` say; docs/dev/cel.md says how far that was compared.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dra_driver.cel.checking import checker, libraries, messages, standard, types, validators
from dra_driver.cel.checking.libraries import Version
from dra_driver.cel.checking.messages import MESSAGE_TYPES
from dra_driver.cel.checking.signatures import Function, read
from dra_driver.cel.checking.types import Type
from dra_driver.cel.cost import estimate
from dra_driver.cel.evaluation import planner
from dra_driver.cel.evaluation.attributes import Evaluable
from dra_driver.cel.evaluation.go_text import quote
from dra_driver.cel.evaluation.values import PanicError
from dra_driver.cel.messages import native
from dra_driver.cel.messages.descriptors import EMPTY, FIELDS_ENTRY, MESSAGES, NULL_VALUE
from dra_driver.cel.selector import Context, Selector
from dra_driver.cel.syntax import macros, parser
from dra_driver.cel.syntax.lexer import tokenize
from dra_driver.cel.syntax.macros import MacroTable
from dra_driver.cel.syntax.source import Source, SyntaxProblemError
from dra_driver.cel.syntax.tree import Node
from dra_driver.errors import CompileError

MAX_EXPRESSION_BYTES: Final = 10 * 1024
MAX_COST: Final = 1_000_000

CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"

NEWEST: Final = (1, 37)
OLDEST: Final = (1, 34)

_DEVICE = Type("struct", "kubernetes.DRADevice")
_MAX_DOMAIN, _MAX_ID, _MAX_DRIVER, _MAX_NAMES, _MAX_VALUE = 63, 32, 63, 32, 64

_STANDARD_TYPES = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    EMPTY: MESSAGE_TYPES[EMPTY],
    FIELDS_ENTRY: MESSAGE_TYPES[FIELDS_ENTRY],
    "google.protobuf.Duration": types.DURATION,
    "int": types.INT,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "null_type": types.NULL,
    "string": types.STRING,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "type": types.TYPE,
    "uint": types.UINT,
    "optional_type": types.optional_of(types.DYN),
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
}
_MESSAGES = {"duration": types.DURATION, "timestamp": types.TIMESTAMP, **MESSAGE_TYPES}
"""Names that the checker knows as types of messages and the planner does not all know."""
_SCALARS = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"})
"""Names that Kubernetes takes for messages without fields."""


@functools.cache
def _overloads(name: str) -> tuple[tuple[str, object], ...]:
    table = standard.TABLE if name == "standard" else next(library.table for library in libraries.LIBRARIES if library.name == name)
    return tuple(read(table, standard.COMPARABLE))


@dataclass(frozen=True, slots=True)
class Finding:
    """What the API server answers about one expression; `text` is the end of its message, after the field's path."""

    reason: str
    text: str

    def __str__(self) -> str:
        return self.text


class Environment:
    """Compiles selectors for one Kubernetes version, as `stored` expressions or as new ones.

    `gates` overrides the feature gates' defaults (`DRAConsumableCapacity`, `DRAListTypeAttributes`); stored expressions ignore them.
    Environments of equal settings share their tables. Safe for threads.
    """

    def __init__(self, kubernetes: str = "1.37", *, stored: bool = True, gates: Mapping[str, bool] | None = None) -> None:
        """Raises ValueError for a version outside 1.34 to 1.37 or an unknown gate."""
        version = _version(kubernetes)
        chosen = {CONSUMABLE_CAPACITY: version >= (1, 36), LIST_ATTRIBUTES: False}
        for gate, enabled in (gates or {}).items():
            if gate not in chosen:
                raise ValueError(f"unknown feature gate {gate!r}: the CEL environment of devices depends on {', '.join(chosen)} only")
            chosen[gate] = enabled
        self.kubernetes = kubernetes
        self.stored = stored
        self._definition = _define(version, stored, chosen[CONSUMABLE_CAPACITY], chosen[LIST_ATTRIBUTES])

    def compile(self, text: str) -> Selector:
        """What Go's compiler alone does: no limit of length or cost. Raises CompileError with its text."""
        definition = self._definition
        source = Source(text)
        if len(text) > parser.MAX_CODE_POINTS:
            message = f"expression code point size exceeds limit: size: {len(text)}, limit {parser.MAX_CODE_POINTS}"
            raise CompileError(f"compilation failed: ERROR: <input>:-1:0: {message}")
        try:
            tree = parser.parse(source, definition.macros)
        except SyntaxProblemError as error:
            raise CompileError(f"compilation failed: {source.render(error.diagnostics)}", error.diagnostics) from None
        if not definition.has_escaped_names:
            escaped = [source.diagnostic("unsupported syntax: '`'", token.pos) for token in tokenize(source) if token.kind == "escaped"]
            if escaped:
                raise CompileError(f"compilation failed: {source.render(escaped)}", escaped)
        try:
            problems = checker.check(tree.root, source, definition) or validators.validate(tree.root, source)
        except PanicError as error:
            raise CompileError(f"internal error: {error}") from None
        if problems:
            raise CompileError(f"compilation failed: {source.render(problems)}", problems)
        found = tree.root.type
        if not definition.is_result(found):
            raise CompileError(f"must evaluate to bool or the unknown type, not {found}")

        def plan(node: Node) -> Evaluable:
            return planner.plan(node, definition.functions, definition.type_names, definition.opener)

        try:
            program = plan(tree.root)
        except planner.PlanError as error:
            raise CompileError(f"program instantiation failed: {error}") from None
        _, max_cost = estimate.estimate(tree.root, definition.path_size)
        return Selector(text, tree, program, str(found), max_cost, Context(plan, self.compile, definition.takes_lists))

    def admit(self, text: str) -> list[Finding]:
        """What the API server objects to in a new or changed selector; nothing if it accepts it."""
        if len(text.encode(errors="surrogatepass")) > MAX_EXPRESSION_BYTES:
            return [Finding("FieldValueTooLong", f"Too long: may not be more than {MAX_EXPRESSION_BYTES} bytes")]
        try:
            selector = self.compile(text)
        except CompileError as error:
            if str(error).startswith("program instantiation failed"):
                return [Finding("InternalError", f"Internal error: {error}")]
            return [Finding("FieldValueInvalid", f"Invalid value: {quote(text)}: {error}")]
        if selector.max_cost > MAX_COST:
            return [Finding("FieldValueForbidden", "Forbidden: too complex, exceeds cost limit")]
        return []


def _version(text: str) -> Version:
    major, _, minor = text.removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    version = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
    if not OLDEST <= version <= NEWEST:
        known = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise ValueError(f"no CEL environment for Kubernetes {text!r}: known are the versions {known}")
    return version


class _Definition:
    """One environment's declarations."""

    def __init__(self, version: Version, *, stored: bool, consumable_capacity: bool, list_attributes: bool) -> None:
        self._is_old = version < (1, 37)
        self.opener = native.opened if self._is_old else None
        compatible = version if stored else (version[0], version[1] - 1)
        self.functions: dict[str, Function] = {}
        self.macros: MacroTable = dict(macros.STANDARD)
        self.type_names = frozenset(_STANDARD_TYPES)
        self._declare("standard")
        for library in libraries.LIBRARIES:
            if library.introduced <= compatible and (library.removed is None or compatible < library.removed):
                self._declare(library.name)
                self.macros.update(library.macros)
        list_attributes = list_attributes and version >= (1, 36)
        if self._is_old:
            self._make_old()
        if (list_attributes or (stored and version >= (1, 36))) and "includes" not in self.functions:
            self._add(read(libraries.INCLUDES if version >= (1, 37) else libraries.DEVICE_INCLUDES))
        self.has_escaped_names = version >= (1, 37)
        ignores_gates = stored and version >= (1, 37)
        self.takes_lists = list_attributes or not self._is_old
        self.attribute_type = types.DYN if list_attributes or ignores_gates else types.ANY
        inner = types.map_of(types.STRING, self.attribute_type)
        self._fields = {
            "driver": types.STRING,
            "attributes": types.map_of(types.STRING, inner),
            "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
        }
        if stored or consumable_capacity:
            self._fields["allowMultipleAllocations"] = types.BOOL

    def _make_old(self) -> None:
        """What cel-go 0.26 declares and counts otherwise than 0.29."""
        self._add(read(libraries.ONLY_BEFORE_1_37))
        for function in self.functions.values():
            function.overloads = [replace(overload, id=libraries.IDS_BEFORE_1_37.get(overload.id, overload.id)) for overload in function.overloads]

    def _declare(self, name: str) -> None:
        self._add(_overloads(name))

    def _add(self, overloads: object) -> None:
        for name, overload in overloads:  # type: ignore[attr-defined]
            self.functions.setdefault(name, Function(name)).overloads.append(overload)

    def global_name(self, name: str) -> Type | None:
        """The variable `device`, a type, or the one enum value."""
        if name == "device":
            return _DEVICE
        if name == NULL_VALUE:
            return types.INT
        found = _STANDARD_TYPES.get(name) or self._structural(name)
        return None if found is None else types.type_of(found)

    def _structural(self, name: str) -> Type | None:
        """Types that exist for the checker only."""
        if name == _DEVICE.name:
            return _DEVICE
        prefix, _, field = name.rpartition(".")
        if prefix == _DEVICE.name and field in ("attributes", "capacity"):
            return self._fields[field]
        return _MESSAGES.get(name)

    def is_result(self, t: Type) -> bool:
        """Whether a selector may have the type. Before 1.37 a nullable bool is none."""
        if not self._is_old:
            return t.kind == "bool" or t.same(self.attribute_type)
        return t.kind == "any" or (t.kind == "bool" and not t.nullable) or (t.kind == "dyn" and self.takes_lists)

    def message_type(self, name: str) -> Type | None:
        """The type of `name{…}`."""
        return _STANDARD_TYPES.get(name) or self._structural(name)

    def is_message(self, name: str) -> bool:
        """Whether fields can be looked up."""
        return name in _SCALARS or self._structural(name) is not None

    def field_type(self, message: str, field: str) -> Type | None:
        """The type of a field: of the device, of one of its maps, of a protobuf message."""
        if message == _DEVICE.name:
            return self._fields.get(field)
        if message in MESSAGES:
            return messages.field_type(message, field)
        found = types.map_of(types.ANY, types.ANY) if message == "map" else self._structural(message)
        return found.params[1] if found is not None and found.kind == "map" else None

    def path_size(self, path: tuple[str, ...]) -> int | None:
        """How large what stands at a path from `device` may be: characters, entries or elements."""
        if not path or path[0] != "device":
            return None
        if len(path) == 1:
            return 0
        field = path[1]
        if field not in self._fields:
            return None
        if field in ("driver", "allowMultipleAllocations"):
            return (_MAX_DRIVER if field == "driver" else 1) if len(path) == 2 else None
        return _map_path_size(path[2:], is_attributes=field == "attributes")


def _map_path_size(steps: tuple[str, ...], *, is_attributes: bool) -> int | None:
    sizes = ((_MAX_NAMES, _MAX_DOMAIN), (_MAX_NAMES, _MAX_ID))
    for depth, step in enumerate(steps):
        if depth == 2:
            return None
        last = depth == len(steps) - 1
        if step == "@keys":
            return sizes[depth][1] if last else None
        if step not in ("@items", "@values") and not (is_attributes and depth == 1):
            return None
    return (_MAX_NAMES, _MAX_NAMES, _MAX_VALUE if is_attributes else 0)[len(steps)]


@functools.cache
def _define(version: Version, stored: bool, consumable_capacity: bool, list_attributes: bool) -> _Definition:
    return _Definition(version, stored=stored, consumable_capacity=consumable_capacity, list_attributes=list_attributes)
