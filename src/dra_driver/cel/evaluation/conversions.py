"""Conversions between types: `int('7')`, `timestamp('…')`, `string(1.5)`; texts are read by the rules of Go's standard library."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from dra_driver.cel.evaluation import go_numbers, go_text
from dra_driver.cel.evaluation.arithmetic import INT_OVERFLOW, MAX_UNIX, MIN_UNIX, SECOND, TIMESTAMP_OVERFLOW, UINT_OVERFLOW
from dra_driver.cel.evaluation.type_names import type_name
from dra_driver.cel.evaluation.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Err, OptionalValue, Timestamp, TypeValue, Uint, Zone

_NAMES: Final = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def _failed(value: Any, target: str) -> Err:
    return Err(f"type conversion error from '{type_name(value)}' to '{_NAMES.get(target, target)}'")


# From text

_INTEGER = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9_]+")
_SPECIAL_DOUBLE = re.compile(r"[+-]?(?:inf(?:inity)?)|nan", re.IGNORECASE)
_BOOLS = {"1", "t", "T", "TRUE", "true", "True"}
_FALSES = {"0", "f", "F", "FALSE", "false", "False"}


def _small_integer(text: str) -> int:
    """The number, or one that is out of every range."""
    digits = text.lstrip("+-").lstrip("0")
    return int(text) if len(digits) < 25 else 2**80


def parse_double(text: str) -> float | None:
    """strconv.ParseFloat."""
    if _SPECIAL_DOUBLE.fullmatch(text):
        return float(text)
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if (not hexadecimal and not _DECIMAL.fullmatch(text)) or not _underscores_ok(text, hexadecimal=bool(hexadecimal)):
        return None
    bare = text.replace("_", "")
    try:
        value = float.fromhex(bare) if hexadecimal else float(bare)
    except (OverflowError, ValueError):
        return None
    return None if value in (float("inf"), float("-inf")) else value


def _underscores_ok(text: str, *, hexadecimal: bool) -> bool:
    if "_" not in text:
        return True
    return hexadecimal and re.search(r"__|_$|_[^0-9a-fA-F]|[^0-9a-fA-FxX]_", text) is None


def from_text(text: str, target: str) -> Any:
    """A string as a value of another type."""
    result: Any = None
    if target == "int":
        if _INTEGER.fullmatch(text) and MIN_INT <= (number := _small_integer(text)) <= MAX_INT:
            result = number
    elif target == "uint":
        if _UNSIGNED.fullmatch(text) and (number := _small_integer(text)) <= MAX_UINT:
            result = Uint(number)
    elif target == "double":
        result = parse_double(text)
    elif target == "bool":
        result = True if text in _BOOLS else False if text in _FALSES else None
    elif target == "bytes":
        result = text.encode(errors="surrogatepass")
    elif target == "duration":
        result = parse_duration(text)
    elif target == "timestamp":
        result = parse_timestamp(text)
    return _failed(text, target) if result is None else result


_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]+)")


def parse_duration(text: str) -> Duration | None:
    """time.ParseDuration: "-1h2.5m"."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    if not rest:
        return None
    total = 0
    pos = 0
    while pos < len(rest):
        part = _DURATION_PART.match(rest, pos)
        if part is None or not (part[1] or part[3]) or part[4] not in _UNITS:
            return None
        unit = _UNITS[part[4]]
        whole = _small_integer(part[1] or "0") * unit
        if whole > 2**63:
            return None
        total += whole + _fraction(part[3] or "", unit)
        if total > 2**63:
            return None
        pos = part.end()
    if negative:
        return Duration(-total)
    return Duration(total) if total <= MAX_INT else None


def _fraction(digits: str, unit: int) -> int:
    """Go reads the digits after the point until they overflow, then computes with doubles."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > MAX_INT // 10:
            break
        step = value * 10 + int(digit)
        if step > 2**63:
            break
        value, scale = step, scale * 10
    return int(float(value) * (float(unit) / scale)) if value else 0


_TIMESTAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_timestamp(text: str) -> Timestamp | Err | None:
    """time.Parse with RFC 3339."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return None
    if not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        return None
    offset = 0
    if (zone := match[8]) != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 24 or minutes > 60:
            return None
        offset = (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
        if offset % 3600 or not -12 * 3600 <= offset <= 14 * 3600:
            offset = Zone(offset)
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    if not MIN_UNIX <= seconds <= MAX_UNIX:
        return TIMESTAMP_OVERFLOW
    return Timestamp(seconds * SECOND + fraction, offset)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date in the proleptic Gregorian calendar."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


# To and between the others


def to_int(value: Any) -> Any:
    """`int(…)`."""
    kind = type(value)
    if kind is Uint:
        return int(value) if value <= MAX_INT else INT_OVERFLOW
    if kind is float:
        return int(value) if -(2.0**63) < value < 2.0**63 else INT_OVERFLOW
    if kind is str:
        return from_text(value, "int")
    if kind is Duration:
        return value.nanos
    return value.nanos // SECOND if kind is Timestamp else value


def to_uint(value: Any) -> Any:
    """`uint(…)`."""
    kind = type(value)
    if kind is int:
        return Uint(value) if value >= 0 else UINT_OVERFLOW
    if kind is float:
        return Uint(int(value)) if 0 <= value < 2.0**64 else UINT_OVERFLOW
    return from_text(value, "uint") if kind is str else value


def to_double(value: Any) -> Any:
    """`double(…)`."""
    return from_text(value, "double") if type(value) is str else float(value)


def to_string(value: Any) -> Any:
    """`string(…)`."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Err("invalid UTF-8 in bytes, cannot convert to string")
    if kind is float:
        return go_numbers.general(value)
    if kind is Duration:
        return f"{go_numbers.plain(go_text.duration_seconds(value.nanos))}s"
    if kind is Timestamp:
        return go_text.rfc3339(value.nanos, value.offset)
    if kind is TypeValue:
        return value.name
    return value if kind is str else str(value)


def to_timestamp(value: Any) -> Any:
    """`timestamp(…)`."""
    kind = type(value)
    if kind is int:
        return Timestamp(value * SECOND) if MIN_UNIX <= value <= MAX_UNIX else TIMESTAMP_OVERFLOW
    return from_text(value, "timestamp") if kind is str else value


def to_duration(value: Any) -> Any:
    """`duration(…)`. That of an integer exists in old versions, and always fails."""
    kind = type(value)
    if kind is int:
        return _failed(value, "duration")
    return from_text(value, "duration") if kind is str else value


def text_to(target: str) -> Callable[[Any], Any]:
    """A conversion that only changes strings."""
    return lambda value: from_text(value, target) if type(value) is str else value


def type_of(value: Any) -> TypeValue:
    """`type(…)`."""
    return TypeValue(type_name(value))


def go_string(value: Any) -> str | None:
    """What Go's `value.Value().(string)` gives: type values and optionals count as the text they hold."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is TypeValue:
        return str(value.name)
    if kind is OptionalValue and value.has_value:
        return go_string(value.value)
    return None
