"""Pages for users, as something to run.

A page's fenced blocks are told apart by the words after the fence:
``sh`` is typed into a shell; ``sh variables`` is what the reader sets, one `export NAME=value` a line; ``yaml FILE`` is a file that the reader
writes; ``text`` is what the ``sh`` block before it prints: each line is somewhere in the output, in this order, with any text for `…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "user"

_FENCE = re.compile(r"^```(?P<words>[^\n`]*)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"export (?P<name>[A-Z_]+)=(?P<value>\S+)")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is where it begins on its page; `expected` is the content of the ``text`` block after it."""

    words: tuple[str, ...]
    content: str
    line: int
    expected: str = ""

    def variables(self) -> list[str]:
        """The names that an ``sh variables`` block sets. ValueError for anything else in it."""
        names = []
        for line in self.content.splitlines():
            if not (match := _VARIABLE.fullmatch(line)):
                raise ValueError(f"line {self.line}: {line!r} is not export NAME=value")
            names.append(match["name"])
        return names

    def is_printed_by(self, output: str) -> bool:
        """Whether the output has all expected lines in order. Spaces count as one."""
        lines = iter([" ".join(line.split()) for line in output.splitlines()])
        return all(any(pattern.fullmatch(line) for line in lines) for pattern in map(_pattern, self.expected.splitlines()))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order; a ``text`` block is part of the one before it. ValueError where there is none."""
    found: list[Block] = []
    for block in _fenced(page.read_text()):
        if block.words == ("text",):
            if not found or found[-1].words != ("sh",) or found[-1].expected:
                raise ValueError(f"{page.name}, line {block.line}: a text block stands after the sh block that prints it")
            before = found.pop()
            found.append(Block(before.words, before.content, before.line, block.content))
        else:
            found.append(block)
    return found


def _fenced(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        yield Block(tuple(match["words"].split()), match["content"], text.count("\n", 0, match.start()) + 1)


def _pattern(line: str) -> re.Pattern[str]:
    """`…` is any text, also none."""
    return re.compile(re.sub(r"(\\ )?…(\\ )?", ".*", re.escape(" ".join(line.split()))))
