"""Semantic versions 2.0.0 as the CEL of Kubernetes reads them: `major.minor.patch[-prerelease][+build]`.

The rules and texts are those of blang/semver v4, which the API server and the scheduler use: parts are unsigned 64-bit numbers without leading
zeroes, numeric prerelease identifiers come before others, a prerelease comes before its release, build metadata does not count.
An NVIDIA driver version such as 575.57.08 is not one (leading zero); `parse_normalized` reads it.
"""

from __future__ import annotations

import re

from dra_driver.errors import ParseError

_NUMBERS = re.compile(r"[0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]*")
_MAX_UINT64 = 2**64 - 1

_Identifier = tuple[int, int, str]
"""A prerelease identifier in order: (0, number, "") or (1, 0, text)."""


class Semver:
    """An immutable version. Equality, order and hash ignore the build metadata; `str` shows it."""

    __slots__ = ("_build", "_key")

    def __init__(self, major: int, minor: int, patch: int, prerelease: tuple[_Identifier, ...] = (), build: str = "") -> None:
        self._key = (major, minor, patch, not prerelease, prerelease)
        self._build = build

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Reads exactly three parts. Raises ParseError with Go's text."""
        if not text:
            raise ParseError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise ParseError("No Major.Minor.Patch elements found")
        major = _number(parts[0], "Major")
        minor = _number(parts[1], "Minor")
        rest, plus, build = parts[2].partition("+")
        patch, dash, prerelease = rest.partition("-")
        return cls(
            major,
            minor,
            _number(patch, "Patch"),
            tuple(_prerelease(identifier) for identifier in prerelease.split(".")) if dash else (),
            _checked_build(build) if plus else "",
        )

    @classmethod
    def parse_normalized(cls, text: str) -> Semver:
        """As CEL's `semver(text, true)`: one leading "v" is dropped, missing parts are 0, leading zeroes go. Raises ParseError."""
        parts = [_without_leading_zeroes(part) for part in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise ParseError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return cls.parse(".".join(parts))

    @property
    def major(self) -> int:
        """The first number."""
        return self._key[0]

    @property
    def minor(self) -> int:
        """The second number."""
        return self._key[1]

    @property
    def patch(self) -> int:
        """The third number."""
        return self._key[2]

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        return (self._key > other._key) - (self._key < other._key)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Semver) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._key < other._key if isinstance(other, Semver) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._key <= other._key if isinstance(other, Semver) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._key > other._key if isinstance(other, Semver) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._key >= other._key if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        major, minor, patch, _, prerelease = self._key
        pre = ".".join(text or str(number) for _, number, text in prerelease)
        return f"{major}.{minor}.{patch}{'-' if pre else ''}{pre}{'+' if self._build else ''}{self._build}"

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"


def _number(text: str, part: str) -> int:
    """One of the three numbers; `part` is its name in the error."""
    if not _NUMBERS.fullmatch(text):
        raise ParseError(f"Invalid character(s) found in {part.lower()} number {_quote(text)}")
    if text[:1] == "0" and len(text) > 1:
        raise ParseError(f"{part} number must not contain leading zeroes {_quote(text)}")
    return _uint64(text)


def _prerelease(text: str) -> _Identifier:
    if not text:
        raise ParseError("Prerelease is empty")
    if _NUMBERS.fullmatch(text):
        if text[0] == "0" and len(text) > 1:
            raise ParseError(f"Numeric PreRelease version must not contain leading zeroes {_quote(text)}")
        return 0, _uint64(text), ""
    if not _IDENTIFIER.fullmatch(text):
        raise ParseError(f"Invalid character(s) found in prerelease {_quote(text)}")
    return 1, 0, text


def _checked_build(build: str) -> str:
    for identifier in build.split("."):
        if not identifier:
            raise ParseError("Build meta data is empty")
        if not _IDENTIFIER.fullmatch(identifier):
            raise ParseError(f"Invalid character(s) found in build meta data {_quote(identifier)}")
    return build


def _uint64(text: str) -> int:
    """Go's strconv.ParseUint of digits."""
    if not text:
        raise ParseError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or (number := int(text)) > _MAX_UINT64:
        raise ParseError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return number


def _without_leading_zeroes(part: str) -> str:
    if len(part) <= 1 and part.isascii():  # Go counts bytes
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in tuple("0123456789") else f"0{stripped}"


def _quote(text: str) -> str:
    """Go's %q."""
    return f'"{"".join(_ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text)}"'


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
