"""The arithmetic operators: 64 bits with overflow as an error, division that truncates, times and durations, joined strings and lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from dra_driver.cel.evaluation.values import MAX_INT, MAX_UINT, MIN_INT, NO_OVERLOAD, Duration, Err, GrowingList, ListValue, Timestamp, Uint

INT_OVERFLOW: Final = Err("integer overflow")
UINT_OVERFLOW: Final = Err("unsigned integer overflow")
TIMESTAMP_OVERFLOW: Final = Err("timestamp overflow")
_DIVISION_BY_ZERO = Err("division by zero")
_MODULUS_BY_ZERO = Err("modulus by zero")

SECOND: Final = 1_000_000_000
MIN_UNIX: Final = -62135596800
MAX_UNIX: Final = 253402300799


def _int(value: int) -> int | Err:
    return value if MIN_INT <= value <= MAX_INT else INT_OVERFLOW


def _uint(value: int) -> Uint | Err:
    return Uint(value) if 0 <= value <= MAX_UINT else UINT_OVERFLOW


def _duration(nanos: int) -> Duration | Err:
    return Duration(nanos) if MIN_INT <= nanos <= MAX_INT else INT_OVERFLOW


def timestamp(nanos: int, offset: int) -> Timestamp | Err:
    """A time within the years 1 to 9999."""
    return Timestamp(nanos, offset) if MIN_UNIX <= nanos // SECOND <= MAX_UNIX else TIMESTAMP_OVERFLOW


def _later(time: Timestamp, nanos: int) -> Timestamp | Err:
    """A time and a duration, whose seconds are added first."""
    seconds = time.nanos // SECOND + (abs(nanos) // SECOND * (-1 if nanos < 0 else 1))
    total = time.nanos + nanos
    fits = MIN_INT <= seconds <= MAX_INT and MIN_INT <= total // SECOND <= MAX_INT
    return timestamp(total, time.offset) if fits else INT_OVERFLOW


def add(left: Any, right: Any) -> Any:
    """`+` for a left operand of `ADDABLE` type."""
    kind = type(left)
    if kind is Duration and type(right) is Timestamp:
        return _later(right, left.nanos)
    if kind is Timestamp:
        return _later(left, right.nanos) if type(right) is Duration else NO_OVERLOAD
    if isinstance(left, ListValue):
        return _join(left, right)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is int:
        return _int(left + right)
    if kind is Uint:
        return _uint(int(left) + int(right))
    return _duration(left.nanos + right.nanos) if kind is Duration else left + right


def _join(left: ListValue, right: Any) -> Any:
    if not isinstance(right, ListValue):
        return NO_OVERLOAD
    if type(left) is GrowingList:
        left.extend(list(right))
        return left
    if not left:
        return right
    if not right:
        return left
    return ListValue([*left, *right], joined=True)


def subtract(left: Any, right: Any) -> Any:
    """`-` for a left operand of `SUBTRACTABLE` type."""
    kind = type(left)
    if kind is Timestamp and type(right) is Duration:
        return INT_OVERFLOW if right.nanos == MIN_INT else _later(left, -right.nanos)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is int:
        return _int(left - right)
    if kind is Uint:
        return _uint(int(left) - int(right))
    if kind is Timestamp:
        seconds = left.nanos // SECOND - right.nanos // SECOND
        return _duration(left.nanos - right.nanos) if MIN_INT <= seconds * SECOND <= MAX_INT else INT_OVERFLOW
    return _duration(left.nanos - right.nanos) if kind is Duration else left - right


def multiply(left: Any, right: Any) -> Any:
    """`*` for a left operand of `NUMERIC` type."""
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is int:
        return _int(left * right)
    return _uint(int(left) * int(right)) if kind is Uint else left * right


def divide(left: Any, right: Any) -> Any:
    """`/` for a left operand of `NUMERIC` type."""
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is float:
        return _divide_doubles(left, right)
    if not right:
        return _DIVISION_BY_ZERO
    if kind is Uint:
        return Uint(int(left) // int(right))
    quotient = abs(left) // abs(right)
    return _int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    """`%` for a left operand of `MODULAR` type: the sign is that of the dividend."""
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if not right:
        return _MODULUS_BY_ZERO
    if kind is Uint:
        return Uint(int(left) % int(right))
    if left == MIN_INT and right == -1:
        return INT_OVERFLOW
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def negate(value: Any) -> Any:
    """`-` for a value of `NEGATABLE` type."""
    kind = type(value)
    if kind is bool:
        return NO_OVERLOAD
    if kind is Duration:
        return _duration(-value.nanos)
    return -value if kind is float else _int(-value)


NUMERIC = frozenset({float, int, Uint})
ADDABLE = NUMERIC | {bytes, Duration, ListValue, GrowingList, str, Timestamp}
SUBTRACTABLE = NUMERIC | {Duration, Timestamp}
MODULAR = frozenset({int, Uint})
NEGATABLE = frozenset({bool, float, Duration, int})

Operation = Callable[[Any, Any], Any]
