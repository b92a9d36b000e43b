"""An expression's text and what is wrong with it, shown as cel-go shows it: `ERROR: <input>:1:7: message`, the line, and a caret."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

NOWHERE = -1
"""The offset of a problem that belongs to no place in the text."""

_MAX_SHOWN_ERRORS = 100
_MAX_SNIPPET_BYTES = 16384
_WIDE_DOT = "\uff0e"
_WIDE_CARET = "\uff3e"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: `line` and `column` are 1-based (-1 and 0 where it has no place), `offset` counts code points."""

    message: str
    line: int
    column: int
    offset: int


class Source:
    """The text of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts = [0, *(index + 1 for index, char in enumerate(text) if char == "\n")] if "\n" in text else [0]

    def diagnostic(self, message: str, offset: int) -> Diagnostic:
        """Places a message."""
        if offset == NOWHERE:
            return Diagnostic(message, -1, 0, NOWHERE)
        line = bisect_right(self._line_starts, offset)
        return Diagnostic(message, line, offset - self._line_starts[line - 1] + 1, offset)

    def line(self, number: int) -> str:
        """A 1-based line, without its end."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end]

    def render(self, diagnostics: list[Diagnostic]) -> str:
        """All problems in the order of their places, at most 100 of them."""
        ordered = sorted(diagnostics[:_MAX_SHOWN_ERRORS], key=lambda found: (found.line, found.column))
        shown = [self._render_one(found) for found in ordered]
        if (hidden := len(diagnostics) - _MAX_SHOWN_ERRORS) > 0:
            shown.append(f"{hidden} more errors were truncated")
        return "\n".join(shown)

    def _render_one(self, found: Diagnostic) -> str:
        head = f"ERROR: <input>:{found.line}:{found.column}: {found.message}"
        if found.line < 1:
            return head
        snippet = self.line(found.line)
        if len(snippet.encode(errors="surrogatepass")) > _MAX_SNIPPET_BYTES:
            return head
        snippet = snippet.replace("\t", " ")
        before = snippet[: found.column - 1]
        at = snippet[found.column - 1 : found.column]
        dots = "".join("." if char.isascii() else _WIDE_DOT for char in before)
        caret = "^" if at.isascii() else _WIDE_CARET
        return f"{head}\n | {snippet}\n | {dots}{caret}"


class SyntaxProblemError(Exception):
    """The text is not an expression; carries what was found up to there."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics
