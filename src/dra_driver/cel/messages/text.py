"""Messages in protobuf's text format, as Go prints them in errors. How many spaces part two fields depends on the Go binary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_driver.cel.evaluation.go_numbers import general
from dra_driver.cel.evaluation.values import ListValue, TextMap
from dra_driver.cel.messages import wire
from dra_driver.cel.messages.descriptors import PACKAGE

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def any_text(type_url: str, data: bytes) -> str:
    """A google.protobuf.Any; one that holds another one is shown as that."""
    if type_url.rpartition("/")[2] == f"{PACKAGE}Any":
        try:
            inner = wire.decode(f"{PACKAGE}Any", data).fields
        except wire.WireError:
            pass
        else:
            return f"[{type_url}]:{{{any_text(inner.get('type_url', ''), inner.get('value', b''))}}}"
    parts = [f"type_url:{_quote(type_url)}"] if type_url else []
    if data:
        parts.append(f"value:{_quote(data.decode(errors='surrogateescape'))}")
    return " ".join(parts)


def json_text(value: Any) -> str:
    """A google.protobuf.Value."""
    if value is None:
        return "null_value:NULL_VALUE"
    if type(value) is bool:
        return f"bool_value:{'true' if value else 'false'}"
    if type(value) is float:
        shown = general(value)
        return f"number_value:{ {'NaN': 'nan', '+Inf': 'inf', '-Inf': '-inf'}.get(shown, shown) }"
    if type(value) is str:
        return f"string_value:{_quote(value)}"
    if isinstance(value, ListValue):
        return f"list_value:{{{' '.join(f'values:{{{json_text(element)}}}' for element in value)}}}"
    return f"struct_value:{{{' '.join(_entries(value))}}}"


def _entries(entries: TextMap) -> Iterator[str]:
    for key, value in sorted(entries.items()):
        yield f"fields:{{key:{_quote(key)} value:{{{json_text(value)}}}}}"


def _quote(text: str) -> str:
    return f'"{"".join(map(_char, text))}"'


def _char(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if 0x80 <= code <= 0x9F else char
