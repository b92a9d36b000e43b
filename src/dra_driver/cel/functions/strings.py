"""Strings: positions and lengths count code points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dra_driver.cel.evaluation.go_text import show
from dra_driver.cel.evaluation.values import Err, ListValue

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}
_MANY = 2**31


def _out_of_range(index: int) -> Err:
    return Err(f"index out of range: {index}")


def _char_at(text: str, index: int) -> Any:
    return text[index : index + 1] if 0 <= index <= len(text) else _out_of_range(index)


def _index_of(text: str, part: str, offset: int = 0) -> Any:
    if offset < 0:
        return _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset) if offset < len(text) else -1


def _last_index_of(text: str, part: str, offset: int | None = None) -> Any:
    if offset is None:
        if not part:
            return len(text)
        if not text:
            return -1
        offset = len(text) - 1
    if offset < 0:
        return _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


def _unclamped(find: Callable[[str, str, int], Any]) -> Callable[[str, str, int], Any]:
    """Before 1.37 an empty text is found at any offset."""
    return lambda text, part, offset: find(text, part, offset) if part else offset


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, max(min(count, _MANY), -1))


def _split(text: str, separator: str, count: int = -1) -> ListValue:
    if count == 0 or (not separator and not text):
        return ListValue()
    if separator:
        return ListValue(text.split(separator, min(count - 1, _MANY) if count > 0 else -1))
    if count < 0 or count > len(text):
        return ListValue(text)
    return ListValue([*text[: count - 1], text[count - 1 :]])


def _substring(text: str, start: int, end: int | None = None) -> Any:
    if end is not None and start > end:
        return Err(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        return _out_of_range(start)
    if end is not None and not 0 <= end <= len(text):
        return _out_of_range(end)
    return text[start:end]


def _join(parts: ListValue, separator: str = "") -> Any:
    for part in parts:
        if type(part) is not str:
            return Err(f"join: invalid input: {show(part)}")
    return separator.join(parts)


def _quote(text: str) -> str:
    return f'"{"".join(_QUOTED.get(char, char) for char in text)}"'


OVERLOADS: dict[str, Callable[..., Any]] = {
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of,
    "string_index_of_string_int_unclamped": _unclamped(_index_of),
    "string_last_index_of_string_int_unclamped": _unclamped(_last_index_of),
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_SPACE),
    "strings_quote": _quote,
    "list_join": _join,
    "list_join_string": _join,
}
