"""How Go prints values: the verbs %v and %q, durations and times."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.go_numbers import general
from dra_driver.cel.evaluation.network_values import Cidr, IpAddress, Url
from dra_driver.cel.evaluation.type_names import type_name
from dra_driver.cel.evaluation.values import Duration, ListValue, MapValue, OptionalValue, TextMap, Timestamp, TypeValue, Version
from dra_driver.cel.messages.text import json_text
from dra_driver.k8s.quantity import Quantity

_SECOND = 1_000_000_000
_SINCE_LONG_AGO = 9223372028741760000
"""Seconds from where Go's calendar begins, 292 thousand million years ago, to 1970."""
_SPECIAL = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


def quote(text: str) -> str:
    """%q."""
    return f'"{"".join(_quote_char(char) for char in text)}"'


def _quote_char(char: str) -> str:
    if (special := _SPECIAL.get(char)) is not None:
        return special
    code = ord(char)
    if 0x20 <= code < 0x7F or (code > 0x7F and is_print(char)):
        return char
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_print(char: str) -> bool:
    """Letters, marks, numbers, punctuation, symbols, and the ASCII space."""
    return char == " " or unicodedata.category(char)[0] in "LMNPS"


def duration_seconds(nanos: int) -> float:
    """time.Duration.Seconds."""
    whole, rest = _divmod(nanos, _SECOND)
    return float(whole) + float(rest) / 1e9


def _divmod(value: int, unit: int) -> tuple[int, int]:
    """Division that truncates, as Go's."""
    whole, rest = divmod(abs(value), unit)
    return (-whole, -rest) if value < 0 else (whole, rest)


def duration(nanos: int) -> str:
    """time.Duration.String: "1h2m3.5s"."""
    if not nanos:
        return "0s"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    if nanos < _SECOND:
        unit, scale = ("ns", 1) if nanos < 1000 else ("µs", 1000) if nanos < 1_000_000 else ("ms", 1_000_000)
        return f"{sign}{_fraction(nanos, scale)}{unit}"
    seconds, nanos = divmod(nanos, _SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_fraction(seconds * _SECOND + nanos, _SECOND)}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _fraction(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}" if rest else str(whole)


def counted(seconds: int) -> int:
    """Seconds since 1970 as Go's calendar counts them: from a year long ago, without a sign, in 64 bits."""
    return (seconds + _SINCE_LONG_AGO) % 2**64 - _SINCE_LONG_AGO


def civil(seconds: int) -> tuple[int, int, int]:
    """Year, month and day of a time in seconds since 1970, for any year."""
    days = seconds // 86400 + 719468
    era, day_of_era = divmod(days, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def rfc3339(nanos: int, offset: int) -> str:
    """time.RFC3339Nano in the zone of the given offset."""
    local, fraction = divmod(nanos + offset * _SECOND, _SECOND)
    local = counted(local)
    year, month, day = civil(local)
    clock = local % 86400
    part = f".{fraction:09d}".rstrip("0") if fraction else ""
    zone = "Z" if not offset else f"{'-' if offset < 0 else '+'}{abs(offset) // 3600:02d}:{abs(offset) // 60 % 60:02d}"
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}{part}{zone}"


def _time_text(value: Timestamp) -> str:
    """time.Time.String."""
    text = rfc3339(value.nanos, value.offset)
    date, _, rest = text.partition("T")
    clock = rest.rstrip("Z") if not value.offset else rest[:-6]
    zone = "+0000 UTC" if not value.offset else f"{rest[-6:].replace(':', '')} {rest[-6:].replace(':', '')}"
    return f"{date} {clock} {zone}"


def show(value: Any) -> str:
    """%v of a CEL value."""
    if isinstance(value, ListValue):
        return f"[{', '.join(map(json_text if value.json else show, value))}]"
    special = _SHOWN.get(type(value))
    if special is not None:
        return special(value)
    if isinstance(value, (str, int, Quantity, Version, IpAddress, Cidr)):
        return str(value)
    return type_name(value)


def _show_map(value: Any) -> str:
    return f"{{{', '.join(f'{show(key)}: {show(inner)}' for key, inner in value.items())}}}"


_SHOWN: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    float: general,
    type(None): lambda _: "0",
    bytes: lambda value: f"[{' '.join(map(str, value))}]",
    MapValue: _show_map,
    TextMap: _show_map,
    Duration: lambda value: duration(value.nanos),
    Timestamp: _time_text,
    TypeValue: lambda value: value.name,
    Url: lambda value: str(value.parts),
    OptionalValue: lambda value: f"optional({show(value.value)})" if value.has_value else "optional.none()",
}
