"""Values and functions for cel-python that answer as Go does: equality across types, errors by name, Quantity and Semver."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import re2
from celpy import celtypes as cel
from celpy.evaluation import CELEvalError

from dra_driver.errors import EvaluationError, ParseError
from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

Value: TypeAlias = Any

NO_OVERLOAD = "no such overload"

_OPAQUE = (Quantity, Semver)
_NUMBERS = (cel.IntType, cel.UintType, cel.DoubleType)
_TYPE_NAMES = {
    cel.BoolType: "bool",
    cel.IntType: "int",
    cel.UintType: "uint",
    cel.DoubleType: "double",
    cel.StringType: "string",
    cel.ListType: "list",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


class Names(cel.MapType):
    """Attributes or capacities of one domain; a missing name is an error."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else CELEvalError(f"no such key: {key}")


class Domains(cel.MapType):
    """All domains; one that the device does not have is an empty map."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else Names()


class Fields(cel.MapType):
    """`device` itself: fields, not keys."""


def type_name(value: Value) -> str:
    """As CEL names it in errors."""
    return _TYPE_NAMES.get(type(value), "map" if isinstance(value, cel.MapType) else "null_type" if value is None else type(value).__name__)


# Operators --------------------------------------------------------------------------------------------------------


def _equal(left: Value, right: Value) -> bool:
    """Different types are unequal, numbers excepted; a Quantity or Semver on the left side insists on its type."""
    if isinstance(left, _OPAQUE):
        if type(left) is not type(right):
            raise TypeError
        return bool(left == right)
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return _plain(left) == _plain(right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_perhaps_equal(*pair) for pair in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


def _perhaps_equal(left: Value, right: Value) -> bool:
    try:
        return _equal(left, right)
    except TypeError:
        return True


def _not_equal(left: Value, right: Value) -> bool:
    try:
        return not _equal(left, right)
    except TypeError:
        return True


def _plain(number: Value) -> float:
    return float(number) if isinstance(number, float) else int(number)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    """An order of numbers (mixed types too), strings and booleans; Quantity and Semver have none."""

    def ordered(left: Value, right: Value) -> bool:
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            return compare(_plain(left), _plain(right))
        _require((str, cel.BoolType), left, right)
        if type(left) is not type(right):
            raise TypeError
        return compare(left, right)

    return ordered


def _in(item: Value, container: Value) -> bool:
    if isinstance(container, cel.MapType):
        return item in container
    _require(list, container)
    if isinstance(item, Semver) and container and not any(isinstance(element, Semver) for element in container):
        raise EvaluationError("internal error: runtime error: hash of unhashable type cel.Semver")
    return any(not _not_equal(item, element) for element in container)


def _index(container: Value, key: Value) -> Value:
    if isinstance(container, cel.MapType) and not isinstance(container, Fields):
        return container[key] if isinstance(container, Domains) or key in container else CELEvalError(f"no such key: {key}")
    _require(list, container)
    position = int(key)
    return container[position] if 0 <= position < len(container) else CELEvalError(f"index out of bounds: {position}")


def _decided_by(decisive: bool) -> Callable[[Value, Value], Value]:
    """|| or &&: one decisive operand outweighs an error of the other; otherwise the first error counts."""

    def either(left: Value, right: Value) -> Value:
        if any(isinstance(operand, cel.BoolType) and bool(operand) is decisive for operand in (left, right)):
            return cel.BoolType(decisive)
        wrong = [operand for operand in (left, right) if not isinstance(operand, cel.BoolType)]
        return _failure(wrong[0]) if wrong else cel.BoolType(not decisive)

    return either


def _choose(condition: Value, then: Value, otherwise: Value) -> Value:
    if isinstance(condition, cel.BoolType):
        return then if condition else otherwise
    return _failure(condition)


def _failure(operand: Value) -> CELEvalError:
    """The error for an operand that should have been a boolean."""
    return operand if isinstance(operand, CELEvalError) else CELEvalError(NO_OVERLOAD)


# Functions --------------------------------------------------------------------------------------------------------


def _require(kind: type | tuple[type, ...], *values: Value) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise TypeError


def _of_strings(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*texts: Value) -> Any:
        _require(str, *texts)
        return function(*texts)

    return checked


@lru_cache(maxsize=256)
def _pattern(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)


def _matches(text: str, pattern: str) -> bool:
    try:
        return _pattern(str(pattern)).search(str(text)) is not None
    except re2.error as error:
        raise EvaluationError(f"error parsing regexp: {error}") from error


def _string(value: Value) -> str:
    _require((str, cel.BoolType, cel.IntType, cel.UintType), value)
    return str(value).lower() if isinstance(value, cel.BoolType) else str(value)


def _semver(text: Value, normalize: Value = False) -> Semver:
    _require(str, text)
    return Semver.parse_normalized(text) if normalize else Semver.parse(text)


def _is_valid(parse: Callable[..., Any]) -> Callable[..., bool]:
    def is_valid(*operands: Value) -> bool:
        try:
            parse(*operands)
        except ParseError:
            return False
        return True

    return is_valid


def _method(name: str, kinds: tuple[type, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Quantity or Semver. Its operands have one type; only `add` and `sub` take an integer as well."""
    more = (cel.IntType,) if name in {"add", "sub"} else ()

    def method(*operands: Value) -> Any:
        kind = next((kind for kind in kinds if isinstance(operands[0], kind)), None)
        if kind is None or not all(isinstance(operand, (kind, *more)) for operand in operands):
            raise EvaluationError(f"{NO_OVERLOAD}: {name}({', '.join(map(type_name, operands))})")
        return function(*(int(operand) if isinstance(operand, cel.IntType) else operand for operand in operands))

    return method


def _typed(value: Value) -> Value:
    """cel-python's operators leave some results as plain Python values."""
    wrap = {str: cel.StringType, float: cel.DoubleType}.get(type(value))
    return wrap(value) if wrap else value


def _strict(function: Callable[..., Any], wrap: Callable[[Any], Value] | None) -> Callable[..., Value]:
    """Error operands and failures become cel-python's error value; the result gets its CEL type."""

    def strict(*operands: Value) -> Value:
        for operand in operands:
            if isinstance(operand, CELEvalError):
                return operand
        try:
            result = function(*map(_typed, operands))
        except (ParseError, EvaluationError) as error:
            return CELEvalError(str(error))
        except (AttributeError, TypeError):
            return CELEvalError(NO_OVERLOAD)
        return wrap(result) if wrap and not isinstance(result, CELEvalError) else result

    return strict


_quantity = _of_strings(Quantity.parse)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: upper for upper, lower in _LOWER.items()}

_STRICT: dict[str, tuple[Callable[..., Any], Callable[[Any], Value] | None]] = {
    "_==_": (_equal, cel.BoolType),
    "_!=_": (_not_equal, cel.BoolType),
    "_<_": (_ordered(operator.lt), cel.BoolType),
    "_<=_": (_ordered(operator.le), cel.BoolType),
    "_>_": (_ordered(operator.gt), cel.BoolType),
    "_>=_": (_ordered(operator.ge), cel.BoolType),
    "_in_": (_in, cel.BoolType),
    "_[_]": (_index, None),
    "contains": (_of_strings(operator.contains), cel.BoolType),
    "startsWith": (_of_strings(str.startswith), cel.BoolType),
    "endsWith": (_of_strings(str.endswith), cel.BoolType),
    "matches": (_of_strings(_matches), cel.BoolType),
    "lowerAscii": (_of_strings(lambda text: text.translate(_LOWER)), cel.StringType),
    "upperAscii": (_of_strings(lambda text: text.translate(_UPPER)), cel.StringType),
    "string": (_string, cel.StringType),
    "quantity": (_quantity, None),
    "isQuantity": (_is_valid(_quantity), cel.BoolType),
    "semver": (_semver, None),
    "isSemver": (_is_valid(_semver), cel.BoolType),
    "compareTo": (_method("compareTo", _OPAQUE, lambda left, right: left.compare(right)), cel.IntType),
    "isGreaterThan": (_method("isGreaterThan", _OPAQUE, operator.gt), cel.BoolType),
    "isLessThan": (_method("isLessThan", _OPAQUE, operator.lt), cel.BoolType),
    "add": (_method("add", (Quantity,), Quantity.add), None),
    "sub": (_method("sub", (Quantity,), Quantity.sub), None),
    "sign": (_method("sign", (Quantity,), Quantity.sign), cel.IntType),
    "isInteger": (_method("isInteger", (Quantity,), Quantity.is_integer), cel.BoolType),
    "asInteger": (_method("asInteger", (Quantity,), Quantity.as_integer), cel.IntType),
    "asApproximateFloat": (_method("asApproximateFloat", (Quantity,), Quantity.as_float), cel.DoubleType),
    "major": (_method("major", (Semver,), operator.attrgetter("major")), cel.IntType),
    "minor": (_method("minor", (Semver,), operator.attrgetter("minor")), cel.IntType),
    "patch": (_method("patch", (Semver,), operator.attrgetter("patch")), cel.IntType),
}

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "_||_": _decided_by(True),
    "_&&_": _decided_by(False),
    "_?_:_": _choose,
    **{name: _strict(function, wrap) for name, (function, wrap) in _STRICT.items()},
}
"""By the name under which cel-python looks them up; what is not here is cel-python's own."""
