"""Ranges (minimum, maximum) of sizes and costs, in unsigned 64-bit arithmetic that sticks at its maximum."""

from __future__ import annotations

import math
from typing import Final

Range = tuple[int, int]

LIMIT: Final = 2**64 - 1
UNKNOWN: Final = (0, LIMIT)
NOTHING: Final = (0, 0)
ONE: Final = (1, 1)

_TWO_TO_64 = 2.0**64


def fixed(value: int) -> Range:
    return value, value


def add(*ranges: Range) -> Range:
    low = high = 0
    for one, other in ranges:
        low += one
        high += other
    return (min(LIMIT, low)), (min(LIMIT, high))


def multiply(left: Range, right: Range) -> Range:
    return min(left[0] * right[0], LIMIT), min(left[1] * right[1], LIMIT)


def scale(value: Range, factor: float) -> Range:
    """By a factor, rounded up."""
    return _scale(value[0], factor), _scale(value[1], factor)


def _scale(value: int, factor: float) -> int:
    size = float(value)
    if size > 0 and factor > 0 and size > float(LIMIT) / factor:
        return LIMIT
    scaled = math.ceil(size * factor)
    return LIMIT if scaled >= _TWO_TO_64 else scaled


def whole(value: float) -> int:
    """Go's conversion of a double to an unsigned number, for what is too large as well."""
    return int(value) if value < _TWO_TO_64 else 2**63


def union(left: Range, right: Range) -> Range:
    return min(left[0], right[0]), max(left[1], right[1])
