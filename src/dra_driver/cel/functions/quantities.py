"""Quantities and semantic versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.values import MAX_INT, Amount, Err, Version
from dra_driver.errors import ParseError
from dra_driver.k8s.quantity import Quantity


def quantity(text: str) -> Amount | Err:
    """`quantity('40Gi')`."""
    try:
        return Amount.parse(text)  # type: ignore[return-value]
    except ParseError as error:
        return Err(str(error))


def semver(text: str, normalize: bool = False) -> Version | Err:
    """`semver('1.2.3')`."""
    try:
        return Version.parse_normalized(text) if normalize else Version.parse(text)  # type: ignore[return-value]
    except ParseError as error:
        return Err(str(error))


def _is(read: Callable[..., Any]) -> Callable[..., bool]:
    return lambda *args: not isinstance(read(*args), Err)


def _as_integer(value: Quantity) -> int | Err:
    try:
        return value.as_integer()
    except ParseError as error:
        return Err(str(error))


def _sum(method: Callable[[Quantity, Any], Quantity]) -> Callable[[Quantity, Any], Any]:
    def total(left: Quantity, right: Any) -> Quantity | Err:
        try:
            return method(left, right)
        except OverflowError as error:
            return Err(str(error))

    return total


def _wrapped(number: int) -> int:
    """Go reads an unsigned number as a signed one."""
    return number if number <= MAX_INT else number - 2**64


def _compare(left: Any, right: Any) -> int:
    return left.compare(right)  # type: ignore[no-any-return]


OVERLOADS: dict[str, Callable[..., Any]] = {
    "string_to_quantity": quantity,
    "is_quantity_string": _is(quantity),
    "quantity_sign": Quantity.sign,
    "quantity_get_float": Quantity.as_float,
    "quantity_get_int": _as_integer,
    "quantity_is_integer": Quantity.is_integer,
    **dict.fromkeys(("quantity_add", "quantity_add_int"), _sum(Quantity.add)),
    **dict.fromkeys(("quantity_sub", "quantity_sub_int"), _sum(Quantity.sub)),
    **dict.fromkeys(("string_to_semver", "string_bool_to_semver"), semver),
    **dict.fromkeys(("is_semver_string", "is_semver_string_bool"), _is(semver)),
    "semver_major": lambda version: _wrapped(version.major),
    "semver_minor": lambda version: _wrapped(version.minor),
    "semver_patch": lambda version: _wrapped(version.patch),
    **dict.fromkeys(("quantity_compare_to", "semver_compare_to"), _compare),
    **dict.fromkeys(("quantity_is_greater_than", "semver_is_greater_than"), lambda left, right: _compare(left, right) > 0),
    **dict.fromkeys(("quantity_is_less_than", "semver_is_less_than"), lambda left, right: _compare(left, right) < 0),
}
