"""What is wrong with one field of an object, as the API server writes it into the causes of a 422.

Source: k8s.io/apimachinery, pkg/util/validation/field.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

_OMITTED = object()

REASONS = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Not found": "FieldValueNotFound",
    "Too many": "FieldValueTooMany",
    "Too long": "FieldValueTooLong",
    "Unsupported value": "FieldValueNotSupported",
}


class FieldError(msgspec.Struct, frozen=True):
    """One entry of a 422. `what` is a key of REASONS; the kinds that carry no value ("Required value", "Too long") omit it."""

    what: str
    field: str
    value: Any = _OMITTED
    detail: str = ""

    @property
    def reason(self) -> str:
        """The machine-readable `what`: FieldValueInvalid and so on."""
        return REASONS[self.what]

    def body(self) -> str:
        """`Invalid value: "x": detail`."""
        return ": ".join(part for part in (self.what, "" if self.value is _OMITTED else _shown(self.value), self.detail) if part)

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """A malformed value."""
    return FieldError("Invalid value", field, value, detail)


def required(field: str, detail: str = "") -> FieldError:
    """A missing value."""
    return FieldError("Required value", field, detail=detail)


def forbidden(field: str, detail: str) -> FieldError:
    """A value that is not allowed here."""
    return FieldError("Forbidden", field, detail=detail)


def duplicate(field: str, value: Any) -> FieldError:
    """A value that must be unique."""
    return FieldError("Duplicate value", field, value)


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list or map beyond its limit."""
    return FieldError("Too many", field, count, f"must have at most {limit} item{'' if limit == 1 else 's'}")


def too_long(field: str, limit: int) -> FieldError:
    """A text beyond its limit, in bytes."""
    return FieldError("Too long", field, detail=f"may not be more than {limit} bytes")


def not_supported(field: str, value: str, supported: tuple[str, ...]) -> FieldError:
    """A value that is none of an enumeration."""
    return FieldError("Unsupported value", field, value, f"supported values: {', '.join(map(_quoted, supported))}")


def _shown(value: Any) -> str:
    """As Go prints it: texts like `%q`, everything else as its JSON, which escapes what is special in HTML."""
    if isinstance(value, str):
        return _quoted(value)
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def _quoted(text: str) -> str:
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
