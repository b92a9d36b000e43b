"""What the expressions of the fast path call: each gives exactly CEL's value or raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

from dra_driver.cel.evaluation.values import Version
from dra_driver.cel.functions import regexes

MEMO_SIZE = 4096
"""How many texts a pattern remembers."""


@functools.lru_cache(maxsize=256)
def code_of(source: str) -> CodeType:
    """The code of a selector; selectors that differ in names and constants only have the same source."""
    return compile(source, "<selector>", "eval")


class FallbackError(Exception):
    """A value that is left to the exact evaluator."""


def as_bool(value: Any) -> bool:
    """A value of unknown type that must be a bool."""
    if type(value) is bool:
        return value
    raise FallbackError


def as_int(value: Any) -> int:
    """A value of unknown type that must be an int."""
    if type(value) is int:
        return value
    raise FallbackError


def as_list(value: Any) -> Any:
    """A value of unknown type that must be a list."""
    if type(value) is tuple or type(value) is list:
        return value
    raise FallbackError


def same(left: Any, right: Any) -> bool:
    """Two values of unknown type."""
    kind = type(left)
    if kind is type(right):
        if kind is tuple:
            raise FallbackError
        return bool(left == right)
    if kind is Version or kind is tuple or type(right) is tuple:
        raise FallbackError
    return False


def among(element: Any, container: Any) -> bool:
    """`element in container` of unknown types."""
    if type(container) is not tuple or type(element) is Version or type(element) is tuple:
        raise FallbackError
    return bool(container) and type(container[0]) is type(element) and element in container


def matcher(pattern: str) -> Callable[[str], bool]:
    """A pattern with a memory of the texts that it has seen."""
    test = regexes.tester(pattern)
    seen: dict[str, bool] = {}
    most = MEMO_SIZE

    def matches(text: str) -> bool:
        try:
            return seen[text]
        except KeyError:
            if len(seen) >= most:
                seen.clear()
            found = seen[text] = test(text)
            return found

    return matches
