"""What the demo prints: steps with a line of explanation, tables, JSON. On a terminal in colour; elsewhere plain, and nothing is ever cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 200
_JSON_WIDTH = 200
_COLOURS = {"true": "green", "false": "yellow", "error": "red"}


class Screen:
    """Numbers its steps; `total` is how many there will be."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._total = total
        self._step = 0
        console = console or Console(highlight=False)
        self._console = console if console.is_terminal else Console(file=console.file, width=_PIPE_WIDTH, highlight=False, color_system=None)

    def title(self, text: str) -> None:
        """The first line."""
        self._print(Text(text, "bold"))

    def step(self, title: str, what: str, *, who: str) -> None:
        """Begins a step: what happens now, and who does it in a real cluster."""
        self._step += 1
        self._print(Text())
        self._print(Text(f"[{self._step}/{self._total}] {title}", "bold cyan"))
        self._print(Text(what))
        self._print(Text(f"In a real cluster: {who}.", "dim"))

    def lines(self, *lines: str) -> None:
        """As they are."""
        for line in lines:
            self._print(Text(line))

    def failure(self, *lines: str) -> None:
        """As they are, to be noticed."""
        for line in lines:
            self._print(Text(line, "bold red"))

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Cells are folded where the terminal is too narrow, but those of the first column: names are to be copied."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for index, heading in enumerate(headings):
            table.add_column(heading, overflow="fold", no_wrap=index == 0)
        for row in rows:
            table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in row))
        self._console.print(table)

    def json(self, value: Any, *, label: str = "") -> None:
        """Indented, with what fits on a line in one line."""
        self.lines(*f"{label}{pretty(value)}".splitlines())

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def pretty(value: Any, indent: int = 0) -> str:
    """JSON for people."""
    flat = json.dumps(value)
    if not isinstance(value, dict | list) or not value or (indent + len(flat) <= _JSON_WIDTH and not _is_nested(value)):
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {pretty(item, indent + 2)}" for key, item in value.items()]
    else:
        items = [pretty(item, indent + 2) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(inner + item for item in items) + "\n" + " " * indent + closing


def _is_nested(value: Any) -> bool:
    """Whether a container holds containers of containers."""
    items = value.values() if isinstance(value, dict) else value
    return any(
        isinstance(inner, dict | list)
        for item in items
        if isinstance(item, dict | list)
        for inner in (item.values() if isinstance(item, dict) else item)
    )
