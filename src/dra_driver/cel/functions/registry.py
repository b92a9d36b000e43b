"""Which implementation stands behind which overload or function.

`BY_OVERLOAD` implementations are called with operands whose types match the overload. `BY_FUNCTION` ones stand for all overloads of a function
and are called when the first operand is of one of the given types (None: always).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dra_driver.cel.functions import formats, lists, network, optionals, quantities, regexes, standard, strings, text_format, urls

Implementation = Callable[..., Any]


class Whole(NamedTuple):
    """An implementation of a whole function."""

    implementation: Implementation
    takes: frozenset[type] | None


BY_OVERLOAD: dict[str, Implementation] = {
    **standard.OVERLOADS,
    **strings.OVERLOADS,
    **text_format.OVERLOADS,
    **lists.OVERLOADS,
    **optionals.OVERLOADS,
    **quantities.OVERLOADS,
    **regexes.OVERLOADS,
    **network.OVERLOADS,
    **urls.OVERLOADS,
    **formats.OVERLOADS,
}
BY_FUNCTION: dict[str, Whole] = {name: Whole(*entry) for name, entry in {**standard.FUNCTIONS, **lists.FUNCTIONS}.items()}

UNGUARDED = frozenset({"contains", "endsWith", "startsWith", "flatten"})
"""Functions whose implementations look at the types of their operands themselves."""

LAZY = frozenset({"string_format"})
"""Overloads of two operands whose second one is not evaluated after an error in the first."""
