"""HTTP/1.1 messages: requests that http.server understands, answers read as http.client reads them."""

from __future__ import annotations

import http.client
import io
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dra_driver.k8s import http11

TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)
RESERVED = {"content-length", "transfer-encoding", "connection"}


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """An answer as servers send it."""
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.0"]))
    status = draw(st.sampled_from([200, 201, 204, 304, 400, 401, 404, 409, 410, 429, 500, 503]))
    fields = [(name, value) for name, value in draw(st.lists(st.tuples(TOKEN, VALUE), max_size=6)) if name.lower() not in RESERVED]
    body = b"" if status in {204, 304} else draw(st.binary(max_size=300))
    kind = draw(st.sampled_from(["length", "chunked", "end"]))
    if draw(st.booleans()):
        fields.append(("Connection", draw(st.sampled_from(["close", "Close", "keep-alive"]))))
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    if kind == "length":
        fields.append((draw(st.sampled_from(["Content-Length", "content-length"])), str(len(body))))
    elif kind == "chunked" and version == "HTTP/1.1" and status not in {204, 304}:
        fields.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
        body = _chunked(draw, body)
    head = "\r\n".join((f"{version} {status} {draw(st.sampled_from(['OK', '', 'Not so']))}", *(f"{name}: {value}" for name, value in fields), "\r\n"))
    return interim + head.encode("ascii") + body


def _chunked(draw: st.DrawFn, body: bytes) -> bytes:
    sent = b""
    while body:
        size = draw(st.integers(1, len(body)))
        extension = draw(st.sampled_from([b"", b";a=b", b" ; a"]))
        sent += f"{size:x}".encode() + extension + b"\r\n" + body[:size] + b"\r\n"
        body = body[size:]
    return sent + b"0\r\n" + draw(st.sampled_from([b"", b"Trailer: x\r\n"])) + b"\r\n"


class FakeSocket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BufferedReader:
        return stream(self._data)


def stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))


def by_http_client(data: bytes) -> tuple[int, bytes, bool]:
    response = http.client.HTTPResponse(FakeSocket(data), method="GET")  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read(), not response.will_close


def by_us(data: bytes) -> tuple[int, bytes, bool]:
    source = stream(data)
    head = http11.read_head(source)
    return head.status, http11.read_body(source, head), head.keeps


@given(answers())
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
def test_answers_are_read_as_by_http_client(data: bytes) -> None:
    status, body, keeps = by_http_client(data)
    ours = by_us(data)
    assert ours[:2] == (status, body)
    assert keeps or not ours[2], "a connection is kept at most where http.client keeps it"
    source = stream(data)
    head = http11.read_head(source)
    assert b"".join(http11.read_pieces(source, head)) == body


@given(answers(), st.data())
def test_a_part_of_an_answer_is_an_error_unless_the_end_of_the_connection_is_its_end(data: bytes, draw: st.DataObject) -> None:
    part = data[: draw.draw(st.integers(0, len(data) - 1))]
    try:
        _, body, keeps = by_us(part)
    except http11.BrokenAnswerError:
        return
    assert by_http_client(part)[1] == body
    assert not keeps or by_us(data)[1] == body


@given(answers(), st.data())
def test_a_damaged_answer_never_gives_more_than_http_client_finds_in_it(data: bytes, draw: st.DataObject) -> None:
    position = draw.draw(st.integers(0, len(data) - 1))
    damaged = data[:position] + draw.draw(st.binary(min_size=1, max_size=3)) + data[position + 1 :]
    try:
        ours = by_us(damaged)
    except http11.BrokenAnswerError:
        return
    try:
        theirs = by_http_client(damaged)
    except (http.client.HTTPException, ValueError):
        return
    if theirs[:2] != ours[:2]:
        assert not ours[2], "where the two differ, nothing after it is read"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n",
        b"hello\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(http11.BrokenAnswerError):
        by_us(data)


@pytest.mark.parametrize(
    ("target", "fields", "body"),
    [
        ("/api/v1/nodes/n1", {"Host": "h:1", "Authorization": "Bearer x.y"}, None),
        ("/api?fieldSelector=a%3Db", {"Host": "[::1]:6443", "Accept": "application/json"}, b'{"a":"\xc3\xa9"}'),
        ("http://h/x", {"Host": "h"}, b""),
    ],
)
def test_a_request_is_understood_by_http_server(target: str, fields: Mapping[str, str], body: bytes | None) -> None:
    class Handler(BaseHTTPRequestHandler):
        def __init__(self, data: bytes) -> None:
            self.rfile, self.wfile = stream(data), io.BytesIO()
            self.raw_requestline = self.rfile.readline()
            assert self.parse_request()

    handler = Handler(http11.request("PUT", target, fields, body))
    assert (handler.command, handler.path, handler.request_version) == ("PUT", target, "HTTP/1.1")
    assert {name: handler.headers[name] for name in fields} == fields
    assert handler.headers["Content-Length"] == (None if body is None else str(len(body)))
    assert handler.rfile.read() == (body or b"")


@pytest.mark.parametrize(("target", "value"), [("/a b", ""), ("/a\r\nX: y", ""), ("", ""), ("/é", ""), ("/", "a\r\nX: y"), ("/", "a\n"), ("/", "é")])
def test_what_would_be_read_as_something_else_is_not_sent(target: str, value: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        http11.request("GET", target, {"A": value}, None)
