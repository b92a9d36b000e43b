"""cel-python with Kubernetes' Quantity and Semver: an independent implementation beside our engine. Its operators are left as they are."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

import celpy
from celpy import celtypes as cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from dra_driver.cel import Device
from dra_driver.errors import ParseError
from dra_driver.k8s.quantity import Quantity
from dra_driver.k8s.semver import Semver

logging.getLogger("celpy").setLevel(logging.CRITICAL + 1)

_environment = celpy.Environment()


class Domains(cel.MapType):
    """All domains; one that the device does not have is an empty map."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else cel.MapType()


def evaluate(text: str, device: Device) -> object:
    """What cel-python says: a boolean, "error" for a failed evaluation or a value of another type, "unparsed" for what it cannot parse."""
    try:
        runner = _environment.program(_environment.compile(text), FUNCTIONS)
        result = runner.evaluate({"device": variable(device)})
    except CELParseError:
        return "unparsed"
    except Exception:  # noqa: BLE001 - it raises whatever Python raises
        return "error"
    return bool(result) if isinstance(result, cel.BoolType) else "error"


def variable(device: Device) -> cel.MapType:
    return cel.MapType(
        {
            cel.StringType("driver"): cel.StringType(device.driver),
            cel.StringType("allowMultipleAllocations"): cel.BoolType(device.allow_multiple_allocations),
            cel.StringType("attributes"): _domains(device.attributes),
            cel.StringType("capacity"): _domains(device.capacity),
        }
    )


def _domains(domains: Any) -> Domains:
    inner = {domain: {cel.StringType(name): _value(value) for name, value in names.items()} for domain, names in domains.items()}
    return Domains({cel.StringType(domain): cel.MapType(names) for domain, names in inner.items()})


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return cel.ListType([_value(item) for item in value])
    if isinstance(value, (Quantity, Semver)):
        return value
    return {bool: cel.BoolType, int: cel.IntType, str: cel.StringType}[type(value)](value)


def _function(function: Callable[..., Any], wrap: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    def guarded(*operands: Any) -> Any:
        for operand in operands:
            if isinstance(operand, CELEvalError):
                return operand
        try:
            result = function(*(int(operand) if isinstance(operand, cel.IntType) else operand for operand in operands))
        except (ParseError, AttributeError, TypeError, ValueError, OverflowError) as error:
            return CELEvalError(str(error))
        return wrap(result) if wrap else result

    return guarded


def _is_valid(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        try:
            parse(text)
        except ParseError:
            return False
        return True

    return is_valid


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _function(Quantity.parse),
    "isQuantity": _function(_is_valid(Quantity.parse), cel.BoolType),
    "semver": _function(Semver.parse),
    "isSemver": _function(_is_valid(Semver.parse), cel.BoolType),
    "compareTo": _function(lambda left, right: left.compare(right), cel.IntType),
    "isGreaterThan": _function(lambda left, right: left.compare(right) > 0, cel.BoolType),
    "isLessThan": _function(lambda left, right: left.compare(right) < 0, cel.BoolType),
    "add": _function(lambda left, right: left.add(right)),
    "sub": _function(lambda left, right: left.sub(right)),
    "sign": _function(lambda amount: amount.sign(), cel.IntType),
    "isInteger": _function(lambda amount: amount.is_integer(), cel.BoolType),
    "asInteger": _function(lambda amount: amount.as_integer(), cel.IntType),
    "asApproximateFloat": _function(lambda amount: amount.as_float(), cel.DoubleType),
    "major": _function(operator.attrgetter("major"), cel.IntType),
    "minor": _function(operator.attrgetter("minor"), cel.IntType),
    "patch": _function(operator.attrgetter("patch"), cel.IntType),
}
