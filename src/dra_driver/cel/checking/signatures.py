"""Reads the tables of functions: one line per overload, `function overload_id (argument, …) -> result`, with `receiver.(…)` for members."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dra_driver.cel.checking import types
from dra_driver.cel.checking.types import Type

_NAMED = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "dyn": types.DYN,
    "int": types.INT,
    "null": types.NULL,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "type": types.TYPE,
    "uint": types.UINT,
    "Quantity": types.QUANTITY,
    "Semver": types.SEMVER,
    "URL": types.URL,
    "Format": types.FORMAT,
    "IP": types.IP,
    "CIDR": types.CIDR,
    **{name: Type("struct", f"kubernetes.authorization.{name}") for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")},
}
_MAKERS: dict[str, Callable[..., Type]] = {"list": types.list_of, "map": types.map_of, "optional": types.optional_of, "type": types.type_of}
_WORD = re.compile(r"[A-Za-z]+|[(),]")
_PARAMETER = re.compile("[A-Z]")


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. A member's receiver is its first argument."""

    id: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    params: frozenset[str]


@dataclass(slots=True)
class Function:
    """A function's overloads in the order in which the checker tries them."""

    name: str
    overloads: list[Overload] = field(default_factory=list)


def read(table: str, comparable: Iterable[str] = ()) -> list[tuple[str, Overload]]:
    """The overloads of a table. A line with `$T` stands for one line per type of `comparable`."""
    lines = [line.strip() for line in table.strip().splitlines()]
    return [_line(expanded) for line in lines for expanded in ([line.replace("$T", t) for t in comparable] if "$T" in line else [line])]


def _line(line: str) -> tuple[str, Overload]:
    name, overload_id, signature = line.split(None, 2)
    left, result = signature.split(" -> ")
    member = not left.startswith("(")
    receiver, _, arguments = left.rpartition(".(") if member else ("", "", left[1:])
    args = (*_types(receiver), *_types(arguments.removesuffix(")")))
    result_type = _types(result)[0]
    params = frozenset().union(*(_params(t) for t in (*args, result_type)))
    return name, Overload(overload_id, member, args, result_type, params)


def _params(t: Type) -> frozenset[str]:
    if t.kind == "param":
        return frozenset({t.name})
    return frozenset().union(*(_params(param) for param in t.params))


def _types(text: str) -> tuple[Type, ...]:
    words = _WORD.findall(text)
    found: list[Type] = []
    index = 0
    while index < len(words):
        t, index = _type(words, index)
        found.append(t)
        index += 1  # the comma
    return tuple(found)


def _type(words: list[str], index: int) -> tuple[Type, int]:
    word = words[index]
    if index + 1 < len(words) and words[index + 1] == "(":
        inner: list[Type] = []
        index += 1
        while words[index] != ")":
            t, index = _type(words, index + 1)
            inner.append(t)
        return _MAKERS[word](*inner), index + 1
    if _PARAMETER.fullmatch(word):
        return types.parameter(word), index + 1
    return _NAMED[word], index + 1
