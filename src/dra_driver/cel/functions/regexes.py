"""Regular expressions, by RE2: linear time whatever the pattern. Errors carry Go's texts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import re2

from dra_driver.cel.evaluation.conversions import go_string
from dra_driver.cel.evaluation.values import NO_OVERLOAD, Err, ListValue

_CACHED_PATTERNS = 1024
_GO_TEXTS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid character class range": "invalid character class range",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "unexpected )",
    "invalid escape sequence": "invalid escape sequence",
    "invalid UTF-8": "invalid UTF-8",
}

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_UNCAPTURED = re2.Options()
_UNCAPTURED.log_errors = False
_UNCAPTURED.never_capture = True
_PLAIN = re.compile(r"(\^|(?:\.\*)*)((?:[^\\.+*?()|\[\]{}^$]|\\[.+*?()|\[\]{}^$-])*)(\$|(?:\.\*)*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")


class PatternError(Exception):
    """A pattern that Go refuses; the text is Go's."""


@functools.lru_cache(maxsize=_CACHED_PATTERNS)
def compiled(pattern: str) -> Any:
    """The pattern over UTF-8 and without groups, which is much faster than over text. Raises PatternError."""
    if (unsupported := _byte_escape(pattern)) is not None:
        raise PatternError(f"error parsing regexp: invalid escape sequence: `{unsupported}`")
    try:
        return re2.compile(_utf8(pattern), _UNCAPTURED)
    except re2.error as error:
        raise PatternError(_go_text(error)) from None


@functools.lru_cache(maxsize=_CACHED_PATTERNS)
def _over_text(pattern: str) -> Any:
    """The pattern for whoever must know where it matches."""
    return re2.compile(pattern, _OPTIONS)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def tester(pattern: str) -> Callable[[str], bool]:
    """Whether the pattern matches somewhere in a text. Raises PatternError."""
    search = compiled(pattern).search
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None


def plain_test(pattern: str) -> tuple[str, str] | None:
    """For a pattern without choices, such as `.*H100.*`: where its text must stand ("^" at the start, "$" at the end, "" anywhere), and the text."""
    found = _PLAIN.fullmatch(pattern)
    if found is None or (found[1] == "^" and found[3] == "$"):
        return None
    place = found[1] if found[1] == "^" else found[3] if found[3] == "$" else ""
    return place, _ESCAPED.sub(r"\1", found[2])


def _byte_escape(pattern: str) -> str | None:
    r"""`\C`, which RE2 knows and Go does not."""
    index = 0
    while (index := pattern.find("\\", index)) >= 0:
        if pattern[index + 1 : index + 2] == "C":
            return "\\C"
        if pattern[index + 1 : index + 2] == "Q":
            index = pattern.find("\\E", index)
            if index < 0:
                return None
        index += 2
    return None


def _go_text(error: Any) -> str:
    text = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
    kind, colon, detail = text.partition(": ")
    if not colon:
        return f"error parsing regexp: {_GO_TEXTS.get(text, text)}"
    return f"error parsing regexp: {_GO_TEXTS.get(kind, kind)}: `{detail}`"


def _fixed(pattern: str) -> Any | Err:
    try:
        return compiled(pattern)
    except PatternError as error:
        return Err(str(error))


def _illegal(problem: Err) -> Err:
    return Err(f"Illegal regex: {problem.text}")


def matches(text: Any, pattern: Any) -> Any:
    """`text.matches(pattern)`."""
    if type(pattern) is not str:
        return NO_OVERLOAD
    regex = _fixed(pattern)
    return regex if isinstance(regex, Err) else regex.search(_utf8(text)) is not None


def _find(text: str, pattern: str) -> Any:
    regex = _fixed(pattern)
    return _illegal(regex) if isinstance(regex, Err) else _first(regex, text)


def _first(regex: Any, text: str) -> str:
    found = regex.search(_utf8(text))
    return found[0].decode("utf-8", "surrogatepass") if found else ""


def _find_all(text: str, pattern: str, count: int = -1) -> Any:
    regex = _fixed(pattern)
    return _illegal(regex) if isinstance(regex, Err) else _all(pattern, text, count)


def _all(pattern: str, text: str, count: int) -> ListValue:
    """Go's FindAllString: an empty match directly after a match does not count."""
    regex = _over_text(pattern)
    found = ListValue()
    pos, previous_end = 0, -1
    while (count < 0 or len(found) < count) and pos <= len(text):
        match = regex.search(text, pos)
        if match is None:
            break
        start, end = match.span()
        if end != pos or start != previous_end:
            found.append(match[0])
        pos = pos + 1 if end == pos else end
        previous_end = end
    return found


def fixed_pattern(function: str, pattern: str) -> Callable[..., Any] | None:
    """The implementation of `matches`, `find` or `findAll` with a constant pattern. Raises PatternError."""
    if function not in ("matches", "find", "findAll"):
        return None
    regex = compiled(pattern)

    def search(text: Any, _pattern: Any, count: Any = -1) -> Any:
        subject = go_string(text)
        if subject is None or type(count) is not int:
            return NO_OVERLOAD
        if function == "matches":
            return regex.search(_utf8(subject)) is not None
        return _first(regex, subject) if function == "find" else _all(pattern, subject, count)

    return search


OVERLOADS: dict[str, Callable[..., Any]] = {
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
