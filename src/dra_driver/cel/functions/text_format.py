"""`format`: `'%d of %s'.format([3, 'x'])`. The clauses %f and %e print as English text does: thousands separated, powers of ten raised."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

from dra_driver.cel.evaluation import conversions, go_numbers, go_text
from dra_driver.cel.evaluation.type_names import type_name
from dra_driver.cel.evaluation.values import Duration, Err, ListValue, MapValue, TextMap, Timestamp, TypeValue, Uint

DEFAULT_PRECISION = 6
_MAX_PRECISION = 1_000_000
_SUPERSCRIPTS = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_SPECIAL_DOUBLES = frozenset({"NaN", "Infinity", "-Infinity"})
_FORMATTABLE = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"


class FormatProblemError(Exception):
    """A clause that does not fit; `argument` is the index of the offending argument, or what the formatter gave."""

    def __init__(self, text: str, culprit: Any = None) -> None:
        super().__init__(text)
        self.text = text
        self.culprit = culprit


def unfit(clause: str, found: str, culprit: Any = None) -> FormatProblemError:
    """The argument's type does not fit the clause."""
    texts = {
        "s": f"string clause can only be used on {_FORMATTABLE}",
        "d": "decimal clause can only be used on integers",
        "f": "fixed-point clause can only be used on doubles",
        "e": "scientific clause can only be used on doubles",
        "b": "only integers and bools can be formatted as binary",
        "x": "only integers, byte buffers, and strings can be formatted as hex",
        "o": "octal clause can only be used on integers",
    }
    return FormatProblemError(f"{texts[clause]}, was given {found}", culprit)


class Formatter(Protocol):
    """Formats one argument, or only checks it."""

    def argument(self, index: int) -> None:
        """The next clause takes this argument. Raises FormatProblemError."""

    @property
    def count(self) -> int:
        """How many arguments there are."""

    def clause(self, letter: str, precision: int | None) -> str:
        """The argument as text. Raises FormatProblemError."""


def expand(template: str, formatter: Formatter) -> str:
    """The template with its clauses replaced. Raises FormatProblemError."""
    parts: list[str] = []
    argument = 0
    pos = 0
    while (found := template.find("%", pos)) >= 0:
        parts.append(template[pos:found])
        if template[found + 1 : found + 2] == "%":
            parts.append("%")
            pos = found + 2
            continue
        formatter.argument(argument)
        if found + 1 >= len(template):
            raise FormatProblemError("unexpected end of string")
        if argument >= formatter.count:
            raise FormatProblemError(f"index {argument} out of range")
        letter, precision, pos = _clause(template, found + 1)
        try:
            parts.append(formatter.clause(letter, precision))
        except FormatProblemError as problem:
            raise FormatProblemError(f"error during formatting: {problem.text}", problem.culprit) from None
        argument += 1
    parts.append(template[pos:])
    return "".join(parts)


def _clause(template: str, pos: int) -> tuple[str, int | None, int]:
    precision: int | None = None
    if template[pos] == ".":
        end = pos + 1
        while end < len(template) and template[end] in "0123456789":
            end += 1
        if end >= len(template):
            raise _bad_clause("error while parsing precision: could not find end of precision specifier")
        digits = template[pos + 1 : end]
        if not digits or len(digits.lstrip("0")) > 18:
            reason = "value out of range" if digits else "invalid syntax"
            raise _bad_clause(
                f"error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {go_text.quote(digits)}: {reason}"
            )
        precision = int(digits)
        pos = end
    letter = template[pos]
    if letter not in "sdfebxXo":
        raise _bad_clause(f'unrecognized formatting clause "{chr(letter.encode()[0])}"')
    return letter, precision, pos + 1


def _bad_clause(text: str) -> FormatProblemError:
    return FormatProblemError(f"could not parse formatting clause: {text}")


class _Values:
    """Formats the arguments of a call."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self._current: Any = None

    @property
    def count(self) -> int:
        return len(self._values)

    def argument(self, index: int) -> None:
        if index >= len(self._values):
            raise FormatProblemError(f"index {index} out of range")
        self._current = self._values[index]

    def clause(self, letter: str, precision: int | None) -> str:
        value = self._current
        if letter == "s":
            return _string(value)
        if letter in "fe":
            return _double(value, letter, DEFAULT_PRECISION if precision is None else precision)
        return _DIRECT[letter](value)


def _string(value: Any) -> str:
    if isinstance(value, ListValue):
        return _list(value)
    if isinstance(value, (MapValue, TextMap)):
        return _map(value)
    if value is None:
        return "null"
    if not isinstance(value, (bool, int, float, str, bytes, Duration, Timestamp, TypeValue)):
        raise unfit("s", type_name(value))
    text = conversions.to_string(value)
    if isinstance(text, Err):
        raise FormatProblemError(f"could not convert argument {go_text.quote(text.text)} to string")
    return str(text)


def _decimal(value: Any) -> str:
    if type(value) not in (int, Uint):
        raise unfit("d", type_name(value))
    return str(int(value))


def _double(value: Any, letter: str, precision: int) -> str:
    if type(value) is not float and not (type(value) is str and value in _SPECIAL_DOUBLES):
        raise unfit(letter, type_name(value))
    number = float(value)
    if precision > _MAX_PRECISION:
        return "%!(BADPREC)" + _double(number, letter, DEFAULT_PRECISION)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return _fixed(number, precision) if letter == "f" else _scientific(number, precision)


def _rounded(number: Decimal, exponent: int) -> Decimal:
    context = decimal.Context(prec=_MAX_PRECISION + 400, rounding=decimal.ROUND_HALF_EVEN)
    return number.quantize(Decimal(1).scaleb(exponent, context), context=context)


def _fixed(number: float, precision: int) -> str:
    return f"{_rounded(Decimal(repr(number)), -precision):,f}"


def _scientific(number: float, precision: int) -> str:
    exact = Decimal(repr(number))
    exponent = exact.adjusted() if exact else 0
    mantissa = _rounded(exact.scaleb(-exponent), -precision)
    if abs(mantissa) >= 10:
        exponent += 1
        mantissa = _rounded(exact.scaleb(-exponent), -precision)
    power = f"{'-' if exponent < 0 else ''}{abs(exponent):02d}".translate(_SUPERSCRIPTS)
    return f"{mantissa:f}\u202f\u00d7\u202f10{power}"


def _binary(value: Any) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) not in (int, Uint):
        raise unfit("b", type_name(value))
    return f"{int(value):b}"


def _octal(value: Any) -> str:
    if type(value) not in (int, Uint):
        raise unfit("o", type_name(value))
    return f"{int(value):o}"


def _hex(value: Any) -> str:
    if type(value) is str:
        return value.encode(errors="surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) not in (int, Uint):
        raise unfit("x", type_name(value))
    return f"{int(value):x}"


_DIRECT: dict[str, Callable[[Any], str]] = {"d": _decimal, "b": _binary, "o": _octal, "x": _hex, "X": lambda value: _hex(value).upper()}


def _member(value: Any) -> str:
    """A value inside a list or map."""
    kind = type(value)
    if kind in (int, Uint):
        return str(int(value))
    if kind is str:
        return go_text.quote(value)
    if kind is bytes:
        return f"b{go_text.quote(_string(value))}"
    if kind in (bool, TypeValue) or value is None:
        return _string(value)
    if kind is Timestamp:
        return f"timestamp({go_text.quote(conversions.to_string(value))})"
    if kind is Duration:
        return f"duration({go_text.quote(conversions.to_string(value))})"
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else go_text.quote(go_numbers.plain(value))
    if isinstance(value, ListValue):
        return _list(value)
    if isinstance(value, (MapValue, TextMap)):
        return _map(value)
    raise FormatProblemError(f"no formatting function for {type_name(value)}")


def _list(values: ListValue) -> str:
    return f"[{', '.join(map(_member, values))}]"


def _map(entries: Any) -> str:
    pairs: list[tuple[str, str]] = []
    for key, value in entries.items():
        if type(key) not in (str, bool, int, Uint):
            raise FormatProblemError(f"no formatting function for map key of type {type_name(key)}")
        pairs.append((_member(key), _member(value)))
    pairs.sort(key=lambda pair: pair[0])
    return f"{{{', '.join(f'{key}:{value}' for key, value in pairs)}}}"


def format_text(template: str, values: ListValue) -> Any:
    """`template.format(values)`."""
    try:
        return expand(template, _Values(values))
    except FormatProblemError as problem:
        return Err(problem.text)


OVERLOADS: dict[str, Callable[..., Any]] = {"string_format": format_text}
