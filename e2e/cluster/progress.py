"""What a person sees while the cluster starts: one line a step, with the time it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Prints the seconds since it was made in front of every line."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:6.1f} s  {text}", flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say `text` when the block has ended well, with the seconds that it took."""
        start = time.monotonic()
        yield
        self.say(f"{text} ({time.monotonic() - start:.1f} s)")
