"""Paths of fields as cel-go keeps them: Go slices, whose `append` may write into an array that another path still uses.

A path of three steps has room for a fourth, so of two variables of one loop over it the second one's step replaces the first one's. The
estimates of cost show it, so it is part of what the API server admits.
"""

from __future__ import annotations


class FieldPath:
    """A slice: the first `length` cells of an array whose size is its capacity."""

    __slots__ = ("_cells", "_length")

    def __init__(self, *steps: str) -> None:
        self._cells: list[str] = list(steps)
        self._length = len(steps)

    def append(self, step: str) -> FieldPath:
        """Go's append: in place where there is room, else into an array of twice the size."""
        longer = FieldPath()
        longer._length = self._length + 1
        if self._length < len(self._cells):
            longer._cells = self._cells
            self._cells[self._length] = step
        else:
            longer._cells = [*self._cells, step, *[""] * (max(2 * len(self._cells), 1) - self._length - 1)]
        return longer

    @property
    def steps(self) -> tuple[str, ...]:
        """What the path says now."""
        return tuple(self._cells[: self._length])


NOWHERE = FieldPath()
"""The path of what does not stand in a variable."""
