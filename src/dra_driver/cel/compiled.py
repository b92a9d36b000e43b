"""The fast path: a selector as one Python expression over a device's dictionaries.

It handles the constructs that selectors are made of and gives up on the rest. The expression is right whenever it gives a value: where CEL
differs from Python, values that would show it make it raise, and any exception means that the exact evaluator decides. No text of the user
becomes code: names come from a counter, constants are passed as objects.

In the expression, D is the driver, M whether several allocations are allowed, A and C are the attributes and capacities by domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.cel import compiled_values
from dra_driver.cel.checking.types import Type, is_dyn
from dra_driver.cel.evaluation.values import Err
from dra_driver.cel.functions import quantities, regexes
from dra_driver.cel.reads import constant_step
from dra_driver.cel.syntax.tree import Call, Ident, ListLiteral, Literal, MacroCall, Node, Select, Tree

Program = Callable[[str, bool, Mapping[str, Any], Mapping[str, Any]], bool]

_MAX_NESTING = 24
_EMPTY: dict[str, Any] = {}
_ORDERS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_TEXT_TESTS = {"startsWith": "startswith", "endsWith": "endswith"}
_MAPS = {"attributes": "A", "capacity": "C"}
_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"


class UnsupportedError(Exception):
    """A construct that is left to the exact evaluator."""


def compile_fast(tree: Tree) -> Program | None:
    """The expression as a function, if it is made of what the fast path knows."""
    if tree.height > _MAX_NESTING:
        return None
    writer = _Writer(tree.macros)
    try:
        body = writer.boolean(tree.root)
    except UnsupportedError:
        return None
    names = list(writer.constants)
    parameters = ", ".join(["D, M, A, C", *(f"{name}={name}" for name in names)])
    code = compiled_values.code_of(f"lambda {parameters}: {body}")
    return eval(code, {"__builtins__": {"len": len, "any": any, "all": all, "type": type}, **writer.constants})  # type: ignore[no-any-return]  # noqa: S307


class _Writer:
    """Writes the parts of the expression; each method gives code for a value of a certain kind."""

    def __init__(self, macros: Mapping[int, MacroCall]) -> None:
        self.constants: dict[str, Any] = {}
        self._macros = macros
        self._scopes: list[tuple[str, str]] = []
        self._names = 0

    # Names

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def _variable(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _local(self, name: str) -> str | None:
        return next((code for cel_name, code in reversed(self._scopes) if cel_name == name), None)

    def _scoped(self, name: str, code: str, write: Callable[[Node], str], body: Node) -> str:
        self._scopes.append((name, code))
        try:
            return write(body)
        finally:
            self._scopes.pop()

    # Values

    def value(self, node: Node) -> str:
        """Any value."""
        if isinstance(node, Literal):
            if type(node.value) not in (bool, int, str):
                raise UnsupportedError
            return self._constant(node.value)
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is None or node.type.kind in ("map", "struct"):
                raise UnsupportedError
            return local
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if (macro := self._macros.get(node.id)) is not None:
            return self._macro(macro)
        raise UnsupportedError

    def boolean(self, node: Node) -> str:
        """A bool."""
        code = self.value(node)
        if node.type.kind == "bool":
            return code
        if not is_dyn(node.type):
            raise UnsupportedError
        return f"{self._helper(compiled_values.as_bool)}({code})"

    def _helper(self, thing: Any) -> str:
        for name, value in self.constants.items():
            if value is thing:
                return name
        return self._constant(thing)

    def _text(self, node: Node) -> str:
        """A string, known to be one."""
        if node.type.kind != "string":
            raise UnsupportedError
        return self.value(node)

    # The device's maps

    def _domains(self, node: Node) -> str | None:
        """`device.attributes` or `device.capacity`, if the node is one."""
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None and _is_domains(node.type):
            return local
        if not isinstance(node, Select) or node.test_only or not isinstance(node.operand, Ident) or node.operand.name != "device":
            return None
        return _MAPS.get(node.field) if self._local("device") is None else None

    def _values(self, node: Node) -> str | None:
        """The values of one domain, if the node is one: an empty dictionary for an unknown domain."""
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None and _is_values(node.type):
            return local
        step = constant_step(node)
        if step is None or (domains := self._domains(step[0])) is None:
            return None
        return f"{domains}.get({self._constant(step[1])}, {self._helper(_EMPTY)})"

    def _select(self, node: Select) -> str:
        if isinstance(node.operand, Ident) and node.operand.name == "device" and self._local("device") is None and not node.test_only:
            if node.field == "driver":
                return "D"
            if node.field == "allowMultipleAllocations":
                return "M"
            raise UnsupportedError
        return self._look_up(node)

    def _look_up(self, node: Node) -> str:
        """One value of a domain, or whether it is there."""
        if isinstance(node, Select) and node.test_only:
            values = self._values(node.operand)
            if values is None:
                raise UnsupportedError
            return f"({self._constant(node.field)} in {values})"
        step = constant_step(node)
        values = None if step is None else self._values(step[0])
        if step is None or values is None:
            raise UnsupportedError
        return f"{values}[{self._constant(step[1])}]"

    def _optional(self, node: Node) -> tuple[str, str]:
        """The domain and the name that `domain.?name` looks at."""
        if isinstance(node, Call) and node.function in ("_?._", "_[?_]") and isinstance(node.args[1], Literal):
            values, key = self._values(node.args[0]), node.args[1].value
            if values is not None and type(key) is str:
                return values, self._constant(key)
        raise UnsupportedError

    # Calls

    def _call(self, node: Call) -> str:
        operands = node.args if node.target is None else [node.target, *node.args]
        if (macro := self._macros.get(node.id)) is not None:
            return self._macro(macro)
        if (write := _CALLS.get(node.function)) is not None:
            return write(self, node, operands)
        return self._text_call(node, operands) or self._ordered_call(node, operands)

    def logical(self, node: Call, operands: list[Node]) -> str:
        return f"({self.boolean(operands[0])} {'and' if node.function == '_&&_' else 'or'} {self.boolean(operands[1])})"

    def negation(self, _node: Call, operands: list[Node]) -> str:
        return f"(not {self.boolean(operands[0])})"

    def choice(self, _node: Call, operands: list[Node]) -> str:
        return f"({self.value(operands[1])} if {self.boolean(operands[0])} else {self.value(operands[2])})"

    def equality(self, node: Call, operands: list[Node]) -> str:
        equal = self._equal(operands[0], operands[1])
        return equal if node.function == "_==_" else f"(not {equal})"

    def index(self, node: Call, _operands: list[Node]) -> str:
        return self._look_up(node)

    def optional(self, node: Call, operands: list[Node]) -> str:
        values, key = self._optional(operands[0])
        if node.function == "hasValue":
            return f"({key} in {values})"
        if node.function == "value":
            return f"{values}[{key}]"
        other = self.value(operands[1])
        if isinstance(operands[1], Literal) or other in self.constants:
            return f"{values}.get({key}, {other})"
        found = self._variable()
        return f"({found}[{key}] if {key} in ({found} := {values}) else {other})"

    def parsed(self, node: Call, _operands: list[Node]) -> str:
        """A Quantity or version that is a literal."""
        if not all(isinstance(arg, Literal) for arg in node.args):
            raise UnsupportedError
        values = [arg.value for arg in node.args if isinstance(arg, Literal)]
        parsed = quantities.quantity(*values) if node.function == "quantity" else quantities.semver(*values)
        if isinstance(parsed, Err):
            raise UnsupportedError
        return self._constant(parsed)

    def _text_call(self, node: Call, operands: list[Node]) -> str | None:
        function = node.function
        if function not in ("contains", "matches", "lowerAscii", "upperAscii", *_TEXT_TESTS):
            return None
        if operands[0].type.kind != "string" and not is_dyn(operands[0].type):
            raise UnsupportedError
        text = self.value(operands[0])
        if function in _TEXT_TESTS:
            return f"{text}.{_TEXT_TESTS[function]}({self._text(operands[1])})"
        if function == "contains":
            return f"({text}.find({self._text(operands[1])}) >= 0)"
        if function == "matches":
            pattern = operands[1]
            if not isinstance(pattern, Literal):
                raise UnsupportedError
            return self._matches(text, pattern.value)
        table = {ord(char): char.lower() if function == "lowerAscii" else char.upper() for char in map(chr, range(128))}
        return f"{text}.translate({self._constant(table)})"

    def _matches(self, text: str, pattern: str) -> str:
        plain = regexes.plain_test(pattern)
        if plain is None:
            return f"{self._constant(compiled_values.matcher(pattern))}({text})"
        place, part = plain[0], self._constant(plain[1])
        return f"({text}.find({part}) >= 0)" if not place else f"{text}.{'startswith' if place == '^' else 'endswith'}({part})"

    def _ordered_call(self, node: Call, operands: list[Node]) -> str:
        """Comparisons of quantities and of versions."""
        comparison = {"isGreaterThan": ">", "isLessThan": "<"}.get(node.function)
        if comparison is None:
            raise UnsupportedError
        left, right = self._keys(operands)
        return f"({left} {comparison} {right})"

    def _keys(self, operands: list[Node]) -> tuple[str, str]:
        """What orders two quantities or two versions; looking for it in any other value raises."""
        name = operands[1].type.name
        if name not in (_QUANTITY, _SEMVER) or (operands[0].type.name != name and not (name == _SEMVER and is_dyn(operands[0].type))):
            raise UnsupportedError
        key = "amount" if name == _QUANTITY else "precedence"
        return f"{self.value(operands[0])}.{key}", f"{self.value(operands[1])}.{key}"

    def order(self, node: Call, operands: list[Node]) -> str:
        left, right = operands
        operator = _ORDERS[node.function]
        if isinstance(left, Call) and left.function == "compareTo" and left.target is not None and isinstance(right, Literal) and right.value == 0:
            mine, theirs = self._keys([left.target, *left.args])
            return f"({mine} {operator} {theirs})"
        kinds = {left.type.kind, right.type.kind}
        if kinds == {"int"} or ("string" in kinds and all(kind in ("string", "dyn", "any") for kind in kinds)):
            return f"({self.value(left)} {operator} {self.value(right)})"
        if "int" in kinds and all(kind in ("int", "dyn", "any") for kind in kinds):
            check = self._helper(compiled_values.as_int)
            mine, theirs = (self.value(side) if side.type.kind == "int" else f"{check}({self.value(side)})" for side in operands)
            return f"({mine} {operator} {theirs})"
        raise UnsupportedError

    def _equal(self, left: Node, right: Node) -> str:
        kinds = (_kind(left.type), _kind(right.type))
        mine, theirs = self.value(left), self.value(right)
        if kinds == ("dyn", "dyn"):
            return f"{self._helper(compiled_values.same)}({mine}, {theirs})"
        fixed = kinds[0] if kinds[1] == "dyn" else kinds[1]
        if fixed not in ("string", "int", "bool", _SEMVER, _QUANTITY):
            raise UnsupportedError
        if "dyn" not in kinds or fixed not in ("int", "bool"):
            return f"({mine} == {theirs})"
        literal = left if isinstance(left, Literal) else right
        if isinstance(literal, Literal) and fixed == "int" and literal.value not in (0, 1):
            return f"({mine} == {theirs})"
        found = self._variable()
        dynamic, other = (mine, theirs) if kinds[0] == "dyn" else (theirs, mine)
        return f"(({found} := {dynamic}) == {other} and type({found}) is {self._helper(bool if fixed == 'bool' else int)})"

    def membership(self, _node: Call, operands: list[Node]) -> str:
        element, container = operands
        if isinstance(container, ListLiteral) and container.elements and not container.optional:
            kinds = {type(part.value) if isinstance(part, Literal) else None for part in container.elements}
            members = self._constant(frozenset(part.value for part in container.elements if isinstance(part, Literal)))
            if kinds == {str}:
                return f"({self.value(element)} in {members})"
            if kinds == {int}:
                found = self._variable()
                return f"(({found} := {self.value(element)}) in {members} and type({found}) is {self._helper(int)})"
            raise UnsupportedError
        entries = self._domains(container) or self._values(container)
        if entries is not None:
            return f"({self._text(element)} in {entries})"
        if not is_dyn(container.type):
            raise UnsupportedError
        return f"{self._helper(compiled_values.among)}({self.value(element)}, {self.value(container)})"

    def size(self, _node: Call, operands: list[Node]) -> str:
        node = operands[0]
        entries = self._domains(node) or self._values(node)
        if entries is None:
            if node.type.kind not in ("string", "list") and not is_dyn(node.type):
                raise UnsupportedError
            entries = self.value(node)
        return f"len({entries})"

    # Macros

    def _macro(self, macro: MacroCall) -> str:
        if macro.function == "bind":
            return self._bind(macro)
        if macro.function in ("exists", "all") and len(macro.args) == 2:
            name, body = macro.args
            return f"{'any' if macro.function == 'exists' else 'all'}({self._loop(macro.target, name, self.boolean, body)})"
        if macro.function == "filter":
            variable = self._variable()
            over = self._iterable(macro.target)
            condition = self._scoped(_name(macro.args[0]), variable, self.boolean, macro.args[1])
            return f"[{variable} for {variable} in {over} if {condition}]"
        if macro.function == "map" and len(macro.args) == 2:
            return f"[{self._loop(macro.target, macro.args[0], self.value, macro.args[1])}]"
        raise UnsupportedError

    def _bind(self, macro: MacroCall) -> str:
        name, value, body = macro.args
        bound = self._domains(value) or self._values(value) or self.value(value)
        variable = self._variable()
        code = self._scoped(_name(name), variable, self.value, body)
        return f"({code} if ({variable} := {bound}) is {variable} else None)"

    def _loop(self, target: Node | None, name: Node, write: Callable[[Node], str], body: Node) -> str:
        variable = self._variable()
        over = self._iterable(target)
        return f"{self._scoped(_name(name), variable, write, body)} for {variable} in {over}"

    def _iterable(self, target: Node | None) -> str:
        if target is None:
            raise UnsupportedError
        entries = self._domains(target) or self._values(target)
        if entries is None:
            if not is_dyn(target.type) and target.type.kind != "list":
                raise UnsupportedError
            entries = f"{self._helper(compiled_values.as_list)}({self.value(target)})"
        if ":=" in entries:
            raise UnsupportedError  # Python allows no assignment there
        return entries


_CALLS: dict[str, Callable[[_Writer, Call, list[Node]], str]] = {
    **dict.fromkeys(("_&&_", "_||_"), _Writer.logical),
    "!_": _Writer.negation,
    "_?_:_": _Writer.choice,
    **dict.fromkeys(("_==_", "_!=_"), _Writer.equality),
    **dict.fromkeys(_ORDERS, _Writer.order),
    "@in": _Writer.membership,
    "_[_]": _Writer.index,
    "size": _Writer.size,
    **dict.fromkeys(("hasValue", "value", "orValue"), _Writer.optional),
    **dict.fromkeys(("quantity", "semver"), _Writer.parsed),
}


def _name(node: Node) -> str:
    if not isinstance(node, Ident):
        raise UnsupportedError
    return node.name


def _kind(t: Type) -> str:
    if is_dyn(t):
        return "dyn"
    return t.name if t.kind == "struct" else t.kind


def _is_values(t: Type) -> bool:
    return t.kind == "map" and t.params[0].kind == "string" and (is_dyn(t.params[1]) or t.params[1].name == _QUANTITY)


def _is_domains(t: Type) -> bool:
    return t.kind == "map" and t.params[0].kind == "string" and _is_values(t.params[1])
