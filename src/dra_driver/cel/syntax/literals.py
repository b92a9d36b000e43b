"""The values of literals: strings and bytes with their escapes, numbers within 64 bits."""

from __future__ import annotations

import re

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "`": 96, "?": 63}
_WIDTHS = {"x": 2, "X": 2, "u": 4, "U": 8}
_NEWLINES = re.compile("\r\n?")
_MAX_CODE_POINT = 0x10FFFF


def unescape_string(text: str) -> str:
    """The value of a string literal as written, quotes included. Raises ValueError with cel-go's text."""
    body, raw = _body(text)
    return body if raw or "\\" not in body else "".join(chr(code) for code, _ in _codes(body, is_bytes=False))


def unescape_bytes(text: str) -> bytes:
    """The value of a bytes literal, without its leading `b`. Octal and hexadecimal escapes are bytes, other characters are UTF-8."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body.encode()
    return b"".join(bytes((code,)) if escaped else chr(code).encode() for code, escaped in _codes(body, is_bytes=True))


def _body(text: str) -> tuple[str, bool]:
    text = _NEWLINES.sub("\n", text)
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
    return text[width:-width], raw


def _codes(body: str, *, is_bytes: bool) -> list[tuple[int, bool]]:
    """Code points, and whether each was written as an escape that stands for a byte."""
    codes: list[tuple[int, bool]] = []
    index = 0
    while index < len(body):
        char = body[index]
        if char != "\\":
            codes.append((ord(char), False))
            index += 1
            continue
        escape = body[index + 1]
        if (simple := _SIMPLE.get(escape)) is not None:
            codes.append((simple, True))
            index += 2
            continue
        width = _WIDTHS.get(escape)
        if width is None:
            code, width = int(body[index + 1 : index + 4], 8), 2
        else:
            if is_bytes and escape in "uU":
                raise ValueError("unable to unescape string")
            code = int(body[index + 2 : index + 2 + width], 16)
        if not is_bytes and (code > _MAX_CODE_POINT or 0xD800 <= code < 0xE000):
            raise ValueError("invalid unicode code point")
        codes.append((code, True))
        index += 2 + width
    return codes


def parse_int(text: str) -> int:
    """A signed 64-bit integer with an optional `-`, decimal or `0x`. Raises ValueError."""
    value = _integer(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("invalid int literal")
    return value


def parse_uint(text: str) -> int:
    """An unsigned 64-bit integer, without its `u`. Raises ValueError."""
    value = _integer(text)
    if value >= 2**64:
        raise ValueError("invalid uint literal")
    return value


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.removeprefix("-")
    if digits.startswith("0x"):
        return sign * int(digits, 16)
    digits = digits.lstrip("0")
    return sign * int(digits or "0") if len(digits) <= 20 else 2**64


def parse_float(text: str) -> float:
    """A double. Raises ValueError where it is infinite."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("invalid double literal")
    return value
