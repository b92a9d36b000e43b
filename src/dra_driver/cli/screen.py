"""What the demo prints: steps with a line of explanation, tables, JSON. On a terminal in colour, elsewhere plain and unwrapped; nothing is cut."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDEST = 200
_COLOURS = {"true": "green", "false": "yellow", "error": "red"}


class Screen:
    """Numbers its steps; `total` is how many there will be. Failures go to `errors`, which is stderr unless given."""

    def __init__(self, total: int, console: Console | None = None, errors: Console | None = None) -> None:
        self._total = total
        self._step = 0
        self._console = _plain_in_a_pipe(console or Console(highlight=False))
        self._errors = _plain_in_a_pipe(errors or Console(stderr=True, highlight=False))

    def title(self, text: str) -> None:
        """The first line."""
        _write(self._console, text, "bold")

    def step(self, title: str, what: str, *, who: str) -> None:
        """Begins a step: what happens now, and who does it in a real cluster."""
        self._step += 1
        _write(self._console, "")
        _write(self._console, f"[{self._step}/{self._total}] {title}", "bold cyan")
        _write(self._console, what)
        _write(self._console, f"In a real cluster: {who}.", "dim")

    def lines(self, *lines: str) -> None:
        """Wrapped at words where the terminal is too narrow; what is longer than a line (a path, a CDI name) stays in one piece to be copied."""
        for line in lines:
            _write(self._console, line)

    def verbatim(self, *lines: str) -> None:
        """As they are, to be copied."""
        for line in lines:
            _put(self._console, line)

    def failure(self, what: str, *more: str) -> None:
        """To be noticed: `what` is wrong, and why."""
        _write(self._errors, "")
        _write(self._errors, what, "bold red")
        for line in more:
            _write(self._errors, line)

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
        self.verbatim(*f"{label}{pretty(value, min(_WIDEST, self._console.width), before=len(label))}".splitlines())


def pretty(value: Any, width: int = _WIDEST, *, indent: int = 0, before: int = 0) -> str:
    """JSON for people. `before` is how much of the first line is taken; only a single long text makes a line longer than `width`."""
    flat = json.dumps(value)
    comma = 1
    if not isinstance(value, dict | list) or not value or (before + len(flat) + comma <= width and not _is_nested(value)):
        return flat
    deeper = indent + 2
    if isinstance(value, dict):
        keys = {key: f"{json.dumps(key)}: " for key in value}
        items = [keys[key] + pretty(item, width, indent=deeper, before=deeper + len(keys[key])) for key, item in value.items()]
    else:
        items = [pretty(item, width, indent=deeper, before=deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(" " * deeper + item for item in items) + "\n" + " " * indent + closing


def _is_nested(value: Any) -> bool:
    """Whether a container holds containers of containers."""
    items = value.values() if isinstance(value, dict) else value
    return any(
        isinstance(inner, dict | list)
        for item in items
        if isinstance(item, dict | list)
        for inner in (item.values() if isinstance(item, dict) else item)
    )


def _plain_in_a_pipe(console: Console) -> Console:
    return console if console.is_terminal else Console(file=console.file, width=_WIDEST, highlight=False, color_system=None)


def _write(console: Console, text: str, style: str = "") -> None:
    for line in text.splitlines() or [""]:
        for part in _wrapped(line, console.width) if console.is_terminal else [line]:
            _put(console, part, style)


def _wrapped(line: str, width: int) -> list[str]:
    """What follows the first part is indented further, if that is indented."""
    indent = " " * (len(line) - len(line.lstrip()))
    follow = indent and indent + "  "
    return textwrap.wrap(line, width, subsequent_indent=follow, break_long_words=False, break_on_hyphens=False) or [""]


def _put(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style), soft_wrap=True)
