"""The standard library: operators, sizes, conversions, the parts of times."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dra_driver.cel.evaluation import arithmetic, conversions, equality, go_text
from dra_driver.cel.evaluation.arithmetic import SECOND
from dra_driver.cel.evaluation.values import MIN_INT, NO_OVERLOAD, Duration, Err, Timestamp
from dra_driver.cel.functions import regexes


def _ordered(accept: Callable[[int], bool]) -> Callable[[Any, Any], bool | Err]:
    def decide(left: Any, right: Any) -> bool | Err:
        order = equality.compare(left, right)
        return order if isinstance(order, Err) else accept(order)

    return decide


def _not(value: Any) -> Any:
    return (not value) if type(value) is bool else NO_OVERLOAD


def _texts(check: Callable[[str, str], bool]) -> Callable[[Any, Any], Any]:
    return lambda text, part: check(text, part) if type(text) is str and type(part) is str else NO_OVERLOAD


FUNCTIONS: dict[str, tuple[Callable[..., Any], frozenset[type] | None]] = {
    "!_": (_not, None),
    "_+_": (arithmetic.add, arithmetic.ADDABLE),
    "_-_": (arithmetic.subtract, arithmetic.SUBTRACTABLE),
    "_*_": (arithmetic.multiply, arithmetic.NUMERIC),
    "_/_": (arithmetic.divide, arithmetic.NUMERIC),
    "_%_": (arithmetic.modulo, arithmetic.MODULAR),
    "-_": (arithmetic.negate, arithmetic.NEGATABLE),
    "_<_": (_ordered(lambda order: order < 0), equality.ORDERED),
    "_<=_": (_ordered(lambda order: order <= 0), equality.ORDERED),
    "_>_": (_ordered(lambda order: order > 0), equality.ORDERED),
    "_>=_": (_ordered(lambda order: order >= 0), equality.ORDERED),
    "@in": (lambda element, container: equality.contains(container, element), None),
    "size": (len, equality.SIZED),
    "type": (conversions.type_of, None),
    "dyn": (lambda value: value, None),
    "matches": (regexes.matches, frozenset({str})),
}


# Parts of times

_HOURS_MINUTES = re.compile(r"[+-]?[0-9]+")
_UTC = "UTC"
_LOCAL = "Local"
"""The zone of the scheduler, which runs in a container without one."""
_CALENDAR_CYCLE = 146097 * 86400
"""The days of 400 years, after which dates and weekdays repeat."""


def _local(time: Timestamp, zone: str) -> tuple[int, int] | Err:
    """Seconds since 1970 in the zone, and nanoseconds."""
    seconds, nanos = divmod(time.nanos, SECOND)
    if zone in ("", _UTC, _LOCAL):
        return go_text.counted(seconds), nanos
    if ":" not in zone:
        offset = _named_offset(seconds, zone)
        return offset if isinstance(offset, Err) else (go_text.counted(seconds + offset), nanos)
    hours, _, minutes = zone.partition(":")
    for part in (hours, minutes):
        if isinstance(conversions.from_text(part, "int"), Err):
            reason = "value out of range" if _HOURS_MINUTES.fullmatch(part) else "invalid syntax"
            return Err(f"strconv.Atoi: parsing {go_text.quote(part)}: {reason}")
    offset = int(hours) * 60 + (-int(minutes) if zone.startswith("-") else int(minutes))
    shift = int(go_text.duration_seconds((offset * 60 * SECOND - MIN_INT) % 2**64 + MIN_INT))  # overflows, as in Go
    return go_text.counted(seconds + shift), nanos


def _named_offset(seconds: int, zone: str) -> int | Err:
    if ".." in zone or zone.startswith(("/", "\\")):
        return Err("time: invalid location name")
    try:
        info = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return Err(f"unknown time zone {zone}")
    earliest, latest = -62135510400, 13601088000  # a day inside of what datetime can hold; when zones follow their last rule
    if seconds > latest:
        seconds = latest + (go_text.counted(seconds) - latest) % _CALENDAR_CYCLE
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(seconds, earliest))
    shift = moment.astimezone(info).utcoffset()
    return int(shift.total_seconds()) if shift is not None else 0


def _weekday(seconds: int) -> int:
    return (seconds // 86400 + 4) % 7


def _day_of_year(seconds: int) -> int:
    year, _, _ = go_text.civil(seconds)
    first = seconds // 86400
    while go_text.civil((first - 1) * 86400)[0] == year:
        first -= 1
    return seconds // 86400 - first


_PARTS: dict[str, Callable[[int, int], int]] = {
    "year": lambda seconds, _: go_text.civil(seconds)[0],
    "month": lambda seconds, _: go_text.civil(seconds)[1] - 1,
    "day_of_year": lambda seconds, _: _day_of_year(seconds),
    "day_of_month": lambda seconds, _: go_text.civil(seconds)[2] - 1,
    "day_of_month_1_based": lambda seconds, _: go_text.civil(seconds)[2],
    "day_of_week": lambda seconds, _: _weekday(seconds),
    "hours": lambda seconds, _: seconds % 86400 // 3600,
    "minutes": lambda seconds, _: seconds % 3600 // 60,
    "seconds": lambda seconds, _: seconds % 60,
    "milliseconds": lambda _, nanos: nanos // 1_000_000,
}


def _time_part(part: str) -> Callable[..., Any]:
    read = _PARTS[part]

    def of(time: Timestamp, zone: str = _UTC) -> Any:
        local = _local(time, zone)
        return local if isinstance(local, Err) else read(*local)

    return of


def _float_part(unit: int) -> Callable[[Duration], int]:
    """Go computes whole hours, minutes and seconds with doubles."""

    def of(duration: Duration) -> int:
        whole, rest = divmod(abs(duration.nanos), unit)
        sign = -1 if duration.nanos < 0 else 1
        return int(float(sign * whole) + float(sign * rest) / float(unit))

    return of


def _milliseconds(duration: Duration) -> int:
    whole = abs(duration.nanos) // 1_000_000
    return -whole if duration.nanos < 0 else whole


def _time_overloads() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for part in _PARTS:
        found[f"timestamp_to_{part}"] = found["timestamp_to_seconds_tz" if part == "seconds" else f"timestamp_to_{part}_with_tz"] = _time_part(part)
    return found


def _same(value: Any) -> Any:
    return value


OVERLOADS: dict[str, Callable[..., Any]] = {
    "not_strictly_false": lambda value: value if type(value) is bool else True,
    "bool_to_bool": _same,
    "string_to_bool": conversions.text_to("bool"),
    "bytes_to_bytes": _same,
    "string_to_bytes": conversions.text_to("bytes"),
    **dict.fromkeys(("double_to_double", "int64_to_double", "string_to_double", "uint64_to_double"), conversions.to_double),
    "duration_to_duration": _same,
    **dict.fromkeys(("string_to_duration", "int64_to_duration"), conversions.to_duration),
    **dict.fromkeys(
        ["int64_to_int64", "double_to_int64", "duration_to_int64", "string_to_int64", "timestamp_to_int64", "uint64_to_int64"], conversions.to_int
    ),
    **dict.fromkeys(
        [
            "string_to_string",
            "bool_to_string",
            "bytes_to_string",
            "double_to_string",
            "duration_to_string",
            "int64_to_string",
            "timestamp_to_string",
            "uint64_to_string",
        ],
        conversions.to_string,
    ),
    **dict.fromkeys(["timestamp_to_timestamp", "int64_to_timestamp", "string_to_timestamp"], conversions.to_timestamp),
    **dict.fromkeys(["uint64_to_uint64", "double_to_uint64", "int64_to_uint64", "string_to_uint64"], conversions.to_uint),
    "contains_string": _texts(lambda text, part: part in text),
    **dict.fromkeys(("ends_with_string", "ends_with_string_by_text"), _texts(str.endswith)),
    **dict.fromkeys(("starts_with_string", "starts_with_string_by_text"), _texts(str.startswith)),
    **_time_overloads(),
    "duration_to_hours": _float_part(3600 * SECOND),
    "duration_to_minutes": _float_part(60 * SECOND),
    "duration_to_seconds": _float_part(SECOND),
    "duration_to_milliseconds": _milliseconds,
}
