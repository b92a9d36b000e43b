"""HTTP/1.1 (RFC 9112) as a client of one server needs it: a request as bytes, an answer from a stream of bytes.

The standard library's http.client reads header fields with the email package and writes them one by one, which is a sixth of all processor time of a
prepare. What is malformed is an error and ends the connection; the tests hold all of it to http.client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import BufferedIOBase
from typing import Protocol

import msgspec

LONGEST_LINE = 1 << 16
MOST_FIELDS = 100
CHUNK = 1 << 16

_TARGET = re.compile(r"[!-~]+")
_FIELD = re.compile(r"[ -~]*")
_NO_BODY = {204, 304}


class _Lines(Protocol):
    def readline(self, size: int = ..., /) -> bytes: ...


class BrokenAnswerError(ConnectionError):
    """What came is no answer, or not all of it."""


class Head(msgspec.Struct, frozen=True):
    """The head of an answer; names of `fields` are in lower case. `keeps`: the connection can be used again after the body."""

    status: int
    fields: dict[str, str]
    keeps: bool


def request(method: str, target: str, fields: Mapping[str, str], body: bytes | None) -> bytes:
    """A request. ValueError for what would be read as something else: blanks in the target, line ends in a field."""
    if not _TARGET.fullmatch(target) or not all(map(_FIELD.fullmatch, fields.values())):
        raise ValueError(f"{method} {target!r}: neither the path nor a header field may have characters other than visible ASCII")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "\r\n")).encode("ascii") + (body or b"")


def read_head(stream: _Lines) -> Head:
    """The head of the next answer. OSError, BrokenAnswerError."""
    while True:
        version, status = _status(_line(stream))
        fields = _fields(stream)
        if status >= 200:  # others only announce an answer
            return Head(status, fields, keeps=version == b"HTTP/1.1" and fields.get("connection", "").lower() != "close" and _ends(status, fields))


def read_body(stream: BufferedIOBase, head: Head) -> bytes:
    """All of the body. OSError, BrokenAnswerError."""
    if "transfer-encoding" not in head.fields and (length := head.fields.get("content-length")) is not None and head.status not in _NO_BODY:
        data = stream.read(_number(length, 10))
        if len(data) < int(length):
            raise BrokenAnswerError(f"the connection ended after {len(data)} of {length} bytes")
        return data
    return b"".join(read_pieces(stream, head))


def read_pieces(stream: BufferedIOBase, head: Head) -> Iterator[bytes]:
    """The body as it comes. OSError, BrokenAnswerError."""
    if head.status in _NO_BODY:
        return
    if "transfer-encoding" in head.fields:
        yield from _chunks(stream, head)
    elif (length := head.fields.get("content-length")) is not None:
        yield from _piece(stream, _number(length, 10))
    else:
        while data := stream.read1(CHUNK):
            yield data


def _status(line: bytes) -> tuple[bytes, int]:
    version, _, rest = line.partition(b" ")
    if version not in {b"HTTP/1.1", b"HTTP/1.0"} or not rest[:3].isdigit():
        raise BrokenAnswerError(f"found {line[:80]!r} where an answer should begin")
    return version, int(rest[:3])


def _fields(stream: _Lines) -> dict[str, str]:
    fields: dict[str, str] = {}
    for _ in range(MOST_FIELDS):
        line = _line(stream)
        if not line:
            return fields
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name:
            raise BrokenAnswerError(f"found {line[:80]!r} where a header field should be")
        name, value = name.lower(), value.strip()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    raise BrokenAnswerError(f"more than {MOST_FIELDS} header fields")


def _ends(status: int, fields: Mapping[str, str]) -> bool:
    """Whether the body has an end of its own, and not that of the connection."""
    return status in _NO_BODY or "content-length" in fields or "transfer-encoding" in fields


def _chunks(stream: BufferedIOBase, head: Head) -> Iterator[bytes]:
    if head.fields["transfer-encoding"].lower() != "chunked":
        raise BrokenAnswerError(f"transfer encoding {head.fields['transfer-encoding']!r} was not asked for")
    while size := _number(_line(stream).partition(b";")[0].strip().decode("latin-1"), 16):
        yield from _piece(stream, size)
        if _line(stream):
            raise BrokenAnswerError("a chunk is longer than it said")
    _fields(stream)  # trailers


def _piece(stream: BufferedIOBase, size: int) -> Iterator[bytes]:
    while size:
        data = stream.read1(min(size, CHUNK))
        if not data:
            raise BrokenAnswerError(f"the connection ended {size} bytes too early")
        size -= len(data)
        yield data


def _line(stream: _Lines) -> bytes:
    line = stream.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise BrokenAnswerError("the connection ended in the head of an answer" if len(line) < LONGEST_LINE else "a line without an end")
    return line[:-2] if line.endswith(b"\r\n") else line[:-1]


def _number(text: str, base: int) -> int:
    if not re.fullmatch("[0-9]+" if base == 10 else "[0-9A-Fa-f]+", text):
        raise BrokenAnswerError(f"found {text[:80]!r} where a length should be")
    return int(text, base)
