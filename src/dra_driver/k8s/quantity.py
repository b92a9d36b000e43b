"""Kubernetes' Quantity ("80Gi", "1500m", "1e3"): a fixed-point number that remembers how it was written.

Exactly apimachinery's `resource.Quantity`, its oddities included, because API server and scheduler decide with it. A value is
`unscaled * 10**scale` in one of two representations: *int64* (small enough at parse time) or *big*. `compare` and `==` see the value only;
`is_integer` and `as_integer` see the representation, so `quantity('1Pi')` is "not an integer" while `1Ti` is one.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from dra_driver.errors import ParseError

BINARY_SI: Final = "BinarySI"
DECIMAL_SI: Final = "DecimalSI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

NANO = -9
"""The smallest scale: what is finer is rounded away from zero."""

_MAX_INT64 = 2**63 - 1
_MIN_INT64 = -(2**63)
_INT64_DIGITS = 18
_MAX_GAP = 100_000
"""More decimal places than this are never written out: a text of ten characters could fill the memory."""

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)")

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_SCALE = {scale: suffix for suffix, scale in _DECIMAL_SUFFIXES.items()}
_BINARY_BY_POWER = ["", *_BINARY_SUFFIXES]


class Quantity:
    """An immutable Quantity. Equal values are equal and hash alike, whatever their notation: `1Gi == 1024Mi`."""

    __slots__ = ("_big", "_format", "_scale", "_text", "_unscaled")

    def __init__(self, unscaled: int, scale: int = 0, form: str = DECIMAL_SI, *, big: bool | None = None, text: str = "") -> None:
        """`unscaled * 10**scale`, written in `form`. `big` defaults to what does not fit int64; `text` overrides the canonical form."""
        self._unscaled = unscaled
        self._scale = scale
        self._format = form
        self._big = not _MIN_INT64 <= unscaled <= _MAX_INT64 if big is None else big
        self._text = text

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Reads a quantity as Go does: no spaces, no digits needed ("m" is 0). Raises ParseError with Go's text."""
        match = _TEXT.fullmatch(text)
        if match is None or not text:
            raise ParseError(_WRONG_FORMAT)
        sign, whole, fraction, suffix = match.groups(default="")
        exponent, form = _suffix(suffix)
        places = len(fraction)
        digits = whole.lstrip("0") or "0"
        shifted = digits + fraction

        if form == BINARY_SI:
            small = not places and _INT64_DIGITS - 4 - len(digits) - exponent * 3 // 10 >= 0
            factor, scale = 2**exponent, -places
        else:
            small = _INT64_DIGITS - len(shifted) >= 0 and exponent - places >= NANO
            factor, scale = 1, exponent - places
        if not small:
            if not whole and not fraction:
                raise ParseError(_WRONG_NUMBER)
            return cls._round(int(Decimal(shifted)) * factor, scale, form, negative=sign == "-")

        number = int(shifted)
        as_written = number & 7 if form == BINARY_SI else scale % 3 == 0 and shifted[0] != "0" and not shifted.endswith("000")
        value = number * factor
        return cls(-value if sign == "-" else value, scale, form, big=False, text=text if as_written else "")

    @classmethod
    def from_bytes(cls, count: int) -> Quantity:
        """A number of bytes, written with binary suffixes: 85899345920 is "80Gi"."""
        return cls(count, form=BINARY_SI)

    @classmethod
    def _round(cls, magnitude: int, scale: int, form: str, *, negative: bool) -> Quantity:
        """A number that is not kept as int64: rounded up to nano, capped (binary suffixes only)."""
        if magnitude and scale < NANO:
            drop = NANO - scale
            magnitude = -(-magnitude // 10**drop) if drop <= _places(magnitude) else 1
            scale = NANO
        elif magnitude and scale - NANO <= _MAX_GAP:
            magnitude *= 10 ** (scale - NANO)
            scale = NANO
        if form == BINARY_SI:
            one = 10**-scale
            if magnitude > _MAX_INT64 * one:
                magnitude, scale = _MAX_INT64, 0
            elif 0 < magnitude < one:
                form = DECIMAL_SI
        return cls(-magnitude if negative else magnitude, scale, form, big=True)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1, by exact value."""
        left, right = self._unscaled, other._unscaled
        if self._scale != other._scale:
            gap = self._scale - other._scale
            if gap > 0:
                left, right = _widen(left, gap, right)
            else:
                right, left = _widen(right, -gap, left)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        return self.compare(other) == 0 if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.compare(other) < 0 if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.compare(other) <= 0 if isinstance(other, Quantity) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.compare(other) > 0 if isinstance(other, Quantity) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.compare(other) >= 0 if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(_stripped(self._unscaled, self._scale, 10))

    def add(self, other: Quantity | int) -> Quantity:
        """The exact sum, int64 where both are and nothing overflows. OverflowError if the scales are absurdly far apart."""
        right = other if isinstance(other, Quantity) else Quantity(other, form=DECIMAL_EXPONENT)
        return self._plus(right, 1)

    def sub(self, other: Quantity | int) -> Quantity:
        """The exact difference; as `add`."""
        right = other if isinstance(other, Quantity) else Quantity(other, form=DECIMAL_EXPONENT)
        return self._plus(right, -1)

    def _plus(self, right: Quantity, sign: int) -> Quantity:
        """`self + sign * right`. Zero takes the other operand's notation.

        Go negates the int64 -2**63 to itself, so subtracting it adds it, unless that overflows.
        """
        unscaled = sign * right._unscaled
        form = self._format if self._unscaled else right._format
        small = not (self._big or right._big)
        wrapped = _MIN_INT64 if small and unscaled > _MAX_INT64 else unscaled
        if small and not unscaled:
            return Quantity(self._unscaled, self._scale, form, big=False)
        if small and not self._unscaled:
            return Quantity(wrapped, right._scale, form)
        scale = min(self._scale, right._scale)
        if max(self._scale, right._scale) - scale > _MAX_GAP:
            raise OverflowError(f"cannot add quantities {self} and {right}: their sum has more than {_MAX_GAP} digits")
        left = self._unscaled * 10 ** (self._scale - scale)
        factor = 10 ** (right._scale - scale)
        numbers = left, wrapped * factor, left + wrapped * factor
        if small and all(_MIN_INT64 <= number <= _MAX_INT64 for number in numbers):
            return Quantity(numbers[2], scale, form, big=False)
        return Quantity(left + unscaled * factor, scale, form, big=True)

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for quantities that behave alike in every way, not just in value: written in the same form and kept in the same representation."""
        return self._unscaled, self._scale, self._format, self._big

    def scaled(self, scale: int, *, most: int) -> int | None:
        """The value as a whole number of `10**scale`, if it is one and not larger than `10**most` times the digits."""
        shift = self._scale - scale
        return self._unscaled * 10**shift if 0 <= shift <= most else None

    def rounded_up(self) -> int | None:
        """The next whole number away from zero, as Go's `Value`; None beyond int64, where Go's overflows."""
        if not self._unscaled:
            return 0
        if not _LEAST <= self <= _MOST:
            return None
        whole: int = 10 ** max(0, -self._scale)
        magnitude: int = abs(self._unscaled) * 10 ** max(0, self._scale)
        return self.sign() * -(-magnitude // whole)

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self._unscaled > 0) - (self._unscaled < 0)

    def is_integer(self) -> bool:
        """Whether `as_integer` works: the int64 representation holds a whole number that fits int64."""
        return self._integer() is not None

    def as_integer(self) -> int:
        """The value. Raises ParseError where Go's fast conversion fails, even for a whole number: compare instead."""
        value = self._integer()
        if value is None:
            raise ParseError("cannot convert value to integer")
        return value

    def _integer(self) -> int | None:
        if self._big or self._scale < 0:
            return None
        if self._scale == 0 or not self._unscaled:
            return self._unscaled
        value = self._unscaled * 10**self._scale if self._scale <= _INT64_DIGITS else _MAX_INT64 + 1
        return value if _MIN_INT64 <= value <= _MAX_INT64 else None

    def as_float(self) -> float:
        """Go's AsApproximateFloat64, bit for bit: `float(unscaled) * 10**scale`, infinite where it is too large."""
        try:
            base = float(self._unscaled)
        except OverflowError:
            base = self.sign() * math.inf
        return base * _pow10(self._scale) if self._scale else base

    def __str__(self) -> str:
        """The canonical form: Go's, but with the largest suffix there is where Go forgets it ("1000E" is not "1")."""
        return self._text or self._canonical()

    def _canonical(self) -> str:
        if not self._unscaled:
            return "0"
        if self._format == BINARY_SI and self._scale <= _MAX_GAP:
            whole, rest = divmod(self._unscaled * 10 ** max(self._scale, 0), 10 ** max(-self._scale, 0))
            if not rest and abs(whole) >= 1024:
                amount, power = _stripped(whole, 0, 1024, most=len(_BINARY_SUFFIXES))
                return f"{_digits(amount)}{_BINARY_BY_POWER[power]}"
        amount, exponent = _stripped(self._unscaled, self._scale, 10)
        if self._format == DECIMAL_EXPONENT:
            amount, exponent = amount * 10 ** (exponent % 3), exponent - exponent % 3
            return f"{_digits(amount)}{f'e{exponent}' if exponent else ''}"
        known = min(exponent - exponent % 3, max(_DECIMAL_BY_SCALE))
        return f"{_digits(amount * 10 ** (exponent - known))}{_DECIMAL_BY_SCALE[known]}"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


_LEAST, _MOST = Quantity(_MIN_INT64), Quantity(_MAX_INT64)


def _suffix(suffix: str) -> tuple[int, str]:
    """Exponent (of two for BinarySI, else of ten) and format of a suffix."""
    if (scale := _DECIMAL_SUFFIXES.get(suffix)) is not None:
        return scale, DECIMAL_SI
    if (power := _BINARY_SUFFIXES.get(suffix)) is not None:
        return power, BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(suffix) > _MAX_GAP or not _MIN_INT64 <= (exponent := int(Decimal(match[1]))) <= _MAX_INT64:
        raise ParseError(_WRONG_SUFFIX)
    return (exponent + 2**31) % 2**32 - 2**31, DECIMAL_EXPONENT  # Go keeps the low 32 bits


def _places(magnitude: int) -> int:
    """An upper bound for the decimal digits of a number, cheap for any size."""
    return magnitude.bit_length() * 31 // 100 + 1


def _widen(value: int, gap: int, other: int) -> tuple[int, int]:
    """`value * 10**gap` and `other`, or two numbers that compare alike when the gap alone decides."""
    if value and gap > _places(other):
        return (1, 0) if value > 0 else (-1, 0)
    return value * 10**gap if value else 0, other


def _stripped(value: int, exponent: int, base: int, *, most: int | None = None) -> tuple[int, int]:
    """The value without trailing factors of `base`, moved into the exponent; at most `most` of them."""
    if not value:
        return 0, 0
    while value % base == 0 and (most is None or exponent < most):
        value //= base
        exponent += 1
    return value, exponent


def _digits(value: int) -> str:
    """Decimal digits of any number: `str` refuses more than 4,300 of them."""
    return str(value) if -_MAX_INT64 <= value <= _MAX_INT64 else str(Decimal(value))


def _pow10(exponent: int) -> float:
    """Go's math.Pow10: two table entries, multiplied or divided."""
    if exponent < -323:
        return 0.0
    if exponent > 308:
        return math.inf
    if exponent >= 0:
        return float(10 ** (exponent // 32 * 32)) * float(10 ** (exponent % 32))
    coarse, fine = divmod(-exponent, 32)
    return float(f"1e-{coarse * 32}") / float(10**fine)
