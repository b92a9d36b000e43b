"""Room for deep expressions: the passes over the tree are recursive, and the grammar allows 250 levels."""

from __future__ import annotations

import sys

_SHALLOW = 24
_ROOM = 50_000


def make_room(nesting: int) -> None:
    """Raises Python's recursion limit (once, for the process) when an expression nests deeper than usual."""
    if nesting > _SHALLOW and sys.getrecursionlimit() < _ROOM:
        sys.setrecursionlimit(_ROOM)
