"""URLs, read by the rules and with the error texts of Go's net/url.

Go's strings are bytes: here a text is handled as Latin-1 characters that stand for its UTF-8 bytes, and turned back at the end.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dra_driver.cel.evaluation.go_text import quote
from dra_driver.cel.evaluation.network_values import Url
from dra_driver.cel.evaluation.values import Err, ListValue, MapValue
from dra_driver.cel.functions.network import parse_address
from dra_driver.errors import ParseError

_ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)
_MARKS = _ALPHANUMERIC | frozenset("-_.~")
_UNESCAPED = {
    "path": _MARKS | frozenset("$&+,/:;=@"),
    "host": _MARKS | frozenset("!$&'()*+,;=:[]<>\""),
    "zone": _MARKS | frozenset("!$&'()*+,;=:[]<>\""),
    "user": _MARKS | frozenset("$&+,;="),
    "query": _MARKS,
    "fragment": _MARKS | frozenset("$&+,/:;=?@!()*"),
}
_VALID_USER = _ALPHANUMERIC | frozenset("-._:~!$&'()*+,;=%@")
_HEX = frozenset(string.hexdigits)
_MAX_QUERY_PARAMETERS = 10000


@dataclass(slots=True)
class _Parts:
    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: str = ""
    raw_path: str = ""
    query: str = ""
    force_query: bool = False
    omit_host: bool = False
    fragment: str = ""
    raw_fragment: str = ""

    def escaped_path(self) -> str:
        return "*" if self.path == "*" and not self.raw_path else _escaped(self.path, self.raw_path, "path")

    def __str__(self) -> str:
        text = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            text += self.opaque
        else:
            text += self._authority()
            path = self.escaped_path()
            if path and path[0] != "/" and self.host:
                text += "/"
            if not text and ":" in path.partition("/")[0]:
                text = "./"
            text += path
        if self.force_query or self.query:
            text += f"?{self.query}"
        return f"{text}#{_escaped(self.fragment, self.raw_fragment, 'fragment')}" if self.fragment else text

    def _authority(self) -> str:
        if not (self.scheme or self.host or self.user is not None) or (self.omit_host and not self.host and self.user is None):
            return ""
        slashes = "//" if self.host or self.path or self.user is not None else ""
        user = f"{self.user}@" if self.user is not None else ""
        return f"{slashes}{user}{_escape(self.host, 'host')}"


def _escaped(text: str, raw: str, mode: str) -> str:
    """As it was written, if that is valid."""
    valid = _UNESCAPED[mode] | frozenset("!$&'()*+,;=:@[]%")
    if raw and all(char in valid for char in raw):
        try:
            if _unescape(raw, mode) == text:
                return raw
        except ParseError:
            pass
    return _escape(text, mode)


def _escape(text: str, mode: str) -> str:
    allowed = _UNESCAPED[mode]
    return "".join(char if char in allowed else f"%{ord(char):02X}" for char in text)


def _unescape(text: str, mode: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char == "%":
            code = text[index : index + 3]
            if len(code) < 3 or code[1] not in _HEX or code[2] not in _HEX:
                raise _bad_escape(code)
            value = chr(int(code[1:], 16))
            if code != "%25":
                if mode == "host" and int(code[1], 16) < 8:
                    raise _bad_escape(code)
                if mode == "zone" and value != " " and value not in _UNESCAPED["host"]:
                    raise _bad_escape(code)
            out.append(value)
            index += 3
            continue
        if mode in ("host", "zone") and char < "\x80" and char not in _UNESCAPED[mode]:
            raise ParseError(f"invalid character {quote(char)} in host name")
        out.append(" " if char == "+" and mode == "query" else char)
        index += 1
    return "".join(out)


def _bad_escape(code: str) -> ParseError:
    return ParseError(f"invalid URL escape {quote(_text(code))}")


def _scheme(text: str) -> tuple[str, str]:
    for index, char in enumerate(text):
        if char == ":":
            if index == 0:
                raise ParseError("missing protocol scheme")
            return text[:index], text[index + 1 :]
        if not (char in string.ascii_letters or (index and char in string.digits + "+-.")):
            break
    return "", text


def _parse(text: str, *, request: bool) -> _Parts:
    if any(char < " " or char == "\x7f" for char in text):
        raise ParseError("net/url: invalid control character in URL")
    if not text and request:
        raise ParseError("empty url")
    if text == "*":
        return _Parts(path="*")
    parts = _Parts()
    parts.scheme, rest = _scheme(text)
    parts.scheme = parts.scheme.lower()
    if rest.endswith("?") and rest.count("?") == 1:
        parts.force_query = True
        rest = rest[:-1]
    else:
        rest, _, parts.query = rest.partition("?")
    if not rest.startswith("/"):
        if parts.scheme:
            parts.opaque = rest
            return parts
        if request:
            raise ParseError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ParseError("first path segment in URL cannot contain colon")
    if (parts.scheme or (not request and not rest.startswith("///"))) and rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        parts.user, parts.host = _authority(parts.scheme, authority)
    elif parts.scheme and rest.startswith("/"):
        parts.omit_host = True
    parts.path = _unescape(rest, "path")
    parts.raw_path = "" if _escape(parts.path, "path") == rest else rest
    return parts


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    user, at, host = authority.rpartition("@")
    host = _host(scheme, host)
    if not at:
        return None, host
    if any(char not in _VALID_USER for char in user):
        raise ParseError("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    shown = _escape(_unescape(name, "user"), "user")
    return f"{shown}:{_escape(_unescape(password, 'user'), 'user')}" if colon else shown, host


def _valid_port(port: str) -> bool:
    return not port or (port[0] == ":" and all(char in string.digits for char in port[1:]))


def _check_port(port: str) -> None:
    if not _valid_port(port):
        raise ParseError(f"invalid port {quote(_text(port))} after host")


def _host(scheme: str, host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise ParseError("invalid IP-literal")
    if opening == 0:
        closing = host.rfind("]")
        if closing < 0:
            raise ParseError("missing ']' in host")
        port = host[closing + 1 :]
        _check_port(port)
        name, zone_mark, zone = host[1:closing].partition("%25")
        literal = _unescape(name, "host") + (_unescape(zone_mark + zone, "zone") if zone_mark else "")
        try:
            address, _ = parse_address(_text(literal))
        except ParseError as error:
            raise ParseError(f"invalid host: {error}") from None
        if address.width == 32:
            raise ParseError("invalid IP-literal")
        return f"[{literal}]{_unescape(port, 'host')}"
    colon = host.find(":")
    if colon >= 0:
        _check_port(host[colon if scheme in ("http", "https") else host.rfind(":") :])
    return _unescape(host, "host")


def _bytes(text: str) -> str:
    return text.encode(errors="surrogateescape").decode("latin-1")


def _text(chars: str) -> str:
    return chars.encode("latin-1").decode(errors="surrogateescape")


def request_problem(text: str) -> str | None:
    """Why a text is no request URI, in Go's words."""
    try:
        _parse(_bytes(text), request=True)
    except ParseError as error:
        return f"parse {quote(text)}: {error}"
    return None


def _url(text: str) -> Url | Err:
    problem = request_problem(text)
    if problem is None:
        rest, hash_mark, fragment = _bytes(text).partition("#")
        shown = rest
        try:
            parts = _parse(rest, request=False)
            if hash_mark and fragment:
                shown = _bytes(text)
                parts.fragment = _unescape(fragment, "fragment")
                parts.raw_fragment = "" if _escape(parts.fragment, "fragment") == fragment else fragment
            return Url(parts)
        except ParseError as error:
            problem = f"parse {quote(_text(shown))}: {error}"
    return Err(f"URL parse error during conversion from string: {problem}")


def _split_host(host: str) -> tuple[str, str]:
    colon = host.rfind(":")
    port = ""
    if colon >= 0 and _valid_port(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host), port


def _query(url: Url) -> MapValue:
    found: dict[str, ListValue] = {}
    pairs = url.parts.query.split("&")
    if len(pairs) <= _MAX_QUERY_PARAMETERS:
        for pair in pairs:
            if not pair or ";" in pair:
                continue
            key, _, value = pair.partition("=")
            try:
                key, value = _unescape(key, "query"), _unescape(value, "query")
            except ParseError:
                continue
            found.setdefault(_text(key), ListValue()).append(_text(value))
    return MapValue(list(found.items()))


OVERLOADS: dict[str, Callable[..., Any]] = {
    "string_to_url": _url,
    "is_url_string": lambda text: request_problem(text) is None,
    "url_get_scheme": lambda url: url.parts.scheme,
    "url_get_host": lambda url: _text(url.parts.host),
    "url_get_hostname": lambda url: _text(_split_host(url.parts.host)[0]),
    "url_get_port": lambda url: _split_host(url.parts.host)[1],
    "url_get_escaped_path": lambda url: _text(url.parts.escaped_path()),
    "url_get_query": _query,
}
