"""How Go prints doubles."""

from __future__ import annotations

import math
from decimal import Decimal

_LARGE_EXPONENT = 6
"""Go prints shortest doubles with an exponent from here on."""


def general(value: float) -> str:
    """%g and %v of a double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _digits(value)
    point = len(digits) + exponent
    if -4 <= point - 1 < _LARGE_EXPONENT:
        return sign + _plain(digits, point)
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{'-' if point - 1 < 0 else '+'}{abs(point - 1):02d}"


def plain(value: float) -> str:
    """strconv.FormatFloat(value, 'f', -1, 64)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _digits(value)
    return sign + _plain(digits, len(digits) + exponent)


def _digits(value: float) -> tuple[str, str, int]:
    """Sign, shortest digits and the exponent of the last one."""
    sign, numbers, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, numbers))
    stripped = digits.rstrip("0") or "0"
    return "-" if sign else "", stripped, int(exponent) + len(digits) - len(stripped) if value else 0


def _plain(digits: str, point: int) -> str:
    if point <= 0:
        return f"0.{'0' * -point}{digits}" if digits != "0" else "0"
    return digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}"
