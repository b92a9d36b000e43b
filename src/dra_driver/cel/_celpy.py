"""The engine of this version: cel-python, held to Go's answers on the common subset, refusing the rest at compile time.

Its InterpretedRunner only: the other one keeps its state in module globals.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, NoReturn

import celpy
import lark
from celpy import celtypes as cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, CELSyntaxError, CELUnsupportedError

from dra_driver.cel._celpy_functions import FUNCTIONS, NO_OVERLOAD, Domains, Fields, Names, type_name
from dra_driver.cel.device import Device
from dra_driver.errors import CompileError, EvaluationError

logging.getLogger("celpy").setLevel(logging.CRITICAL + 1)  # it logs the errors that we raise

_environment = celpy.Environment()

_TEXTS = {
    "divide by zero": "division by zero",
    "modulus or divide by zero": "division by zero",
    "return error for overflow": "integer overflow",
}
_LITERAL_OR_COMMENT = re.compile(r"""[rRbB]{0,2}('''.*?'''|\"\"\".*?\"\"\"|'(\\.|[^'\\])*'|"(\\.|[^"\\])*")|//[^\n]*""", re.DOTALL)
_NEWER_SYNTAX = re.compile(r"\.\?|[\[{,]\s*\?|`")
_DEVICE_FIELDS = {"driver", "attributes", "capacity", "allowMultipleAllocations"}
_MACROS = {"all", "exists", "exists_one", "filter", "map"}
_OWN_FUNCTIONS = {"double", "dyn", "has", "int", "size", "uint"}
"""Functions that cel-python evaluates as Go does."""

_ELSEWHERE = frozenset(
    """
    bind bool bytes charAt cidr containsCIDR containsIP distinct duration existsOne family find findAll first flatten format getDate
    getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear getHost getHostname getHours getMilliseconds getMinutes getMonth
    getPort getQuery getScheme getSeconds hasValue includes indexOf ip isCIDR isGlobalUnicast isIP isLinkLocalMulticast isLinkLocalUnicast
    isLoopback isSorted isURL isUnspecified join last lastIndexOf masked max min optFlatMap optMap or orValue prefixLength replace reverse
    slice sort sortBy split substring sum timestamp transformList transformMap transformMapEntry trim type unwrap unwrapOpt url validate
    value
    """.split()  # noqa: SIM905 - eighty lines otherwise
)
"""Functions and macros that only the API server's engine has."""

_NAMESPACES = {"cel", "format", "ip", "lists", "optional", "sets", "strings"}
_TYPES = {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}


def compile_expression(text: str) -> Callable[[Device], bool]:
    """Parses and checks the text. Raises CompileError."""
    try:
        tree = _environment.compile(text)
    except CELParseError as error:
        _refuse_syntax(text, error)
    _check_names(text, tree)
    runner = _environment.program(tree, FUNCTIONS)

    def evaluate(device: Device) -> bool:
        try:
            result = runner.evaluate({"device": _variable(device)})
        except CELEvalError as error:
            raise EvaluationError(_as_go_says(str(error.args[0]))) from None
        except (CELSyntaxError, CELUnsupportedError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise EvaluationError(f"the CEL engine of this version failed: {type(error).__name__}: {error}") from error
        if not isinstance(result, cel.BoolType):
            raise EvaluationError(f"CEL result of type {type_name(result)} could not be converted to bool")
        return bool(result)

    return evaluate


def _as_go_says(text: str) -> str:
    return NO_OVERLOAD if text.startswith("found no matching overload") else _TEXTS.get(text, text)


def _refuse_syntax(text: str, error: CELParseError) -> NoReturn:
    bare = _LITERAL_OR_COMMENT.sub("''", text)
    newer = _NEWER_SYNTAX.search(bare)
    if newer:
        _refuse_limit(text, f"the syntax {newer[0]!r}")
    raise _compile_error(text, error.line or 1, error.column or 1, "Syntax error") from None


def _refuse_limit(text: str, what: str) -> NoReturn:
    raise CompileError(
        f"{what} in the selector {text!r} is a limit of this version's CEL engine, not an error of yours: "
        "the API server and the scheduler can evaluate it. Until the engine can, use has(), && and ||."
    )


def _compile_error(text: str, line: int, column: int, message: str) -> CompileError:
    """In the form of the API server; line and column count from 1."""
    lines = text.split("\n")
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    return CompileError(f"compilation failed: ERROR: <input>:{line}:{column}: {message}\n | {source}\n | {'.' * (column - 1)}^")


def _check_names(text: str, tree: Any) -> None:
    """Refuses names that do not exist, and those that exist only in the API server's engine."""
    calls = [node for node in tree.iter_subtrees() if node.data in {"member_dot_arg", "ident_arg", "dot_ident_arg"}]
    variables = {"device"}
    for node in calls:
        arguments = _arguments(node)
        function = node.children[-2] if isinstance(node.children[-1], lark.Tree) else node.children[-1]
        if node.data == "member_dot_arg" and function in _MACROS:
            if len(arguments) != 2:
                _refuse_limit(text, f"the macro {function!s} with {len(arguments)} arguments")
            variables.add(_identifier(arguments[0]) or "")
        elif function in _ELSEWHERE or (node.data == "member_dot_arg" and _identifier(node.children[0]) in _NAMESPACES):
            _refuse_limit(text, f"the function {function!s}()")
        elif function not in FUNCTIONS.keys() | _OWN_FUNCTIONS:
            raise _compile_error(text, function.line, function.column, f"undeclared reference to '{function}' (in container '')")
    for node in tree.iter_subtrees():
        if node.data == "ident" and (name := node.children[0]) not in variables:
            if name in _TYPES | _NAMESPACES:
                _refuse_limit(text, f"the type {name!s}")
            raise _compile_error(text, name.line, name.column, f"undeclared reference to '{name}' (in container '')")
        if node.data == "member_dot" and _identifier(node.children[0]) == "device" and (name := node.children[1]) not in _DEVICE_FIELDS:
            raise _compile_error(text, name.line, name.column - 1, f"undefined field '{name}'")


def _arguments(call: Any) -> list[Any]:
    last = call.children[-1]
    return list(last.children) if isinstance(last, lark.Tree) and last.data == "exprlist" else []


def _identifier(node: Any) -> str | None:
    """The name, if the expression is nothing but one."""
    while isinstance(node, lark.Tree) and len(node.children) == 1:
        if node.data == "ident":
            return str(node.children[0])
        node = node.children[0]
    return None


def _variable(device: Device) -> Fields:
    return Fields(
        {
            "driver": cel.StringType(device.driver),
            "allowMultipleAllocations": cel.BoolType(device.allow_multiple_allocations),
            "attributes": _domains(device.attributes),
            "capacity": _domains(device.capacity),
        }
    )


def _domains(domains: Any) -> Domains:
    return Domains({_value(domain): Names({_value(name): _value(value) for name, value in names.items()}) for domain, names in domains.items()})


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return cel.ListType([_value(item) for item in value])
    wrap = {bool: cel.BoolType, int: cel.IntType, str: cel.StringType}.get(type(value))
    return wrap(value) if wrap else value
