"""Ending with a signal, whichever thread the kernel gives it to."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from types import FrameType
from typing import Self

END = (signal.SIGTERM, signal.SIGINT)


class EndSignals:
    """A context, for the main thread, in which these signals do not end the process but `wait`.

    A Python handler alone would not do: it runs in the main thread, which sleeps on while another thread has the signal. What wakes it is a byte
    that the handler below Python's writes into a pipe.
    """

    def __init__(self, numbers: Iterable[signal.Signals] = END) -> None:
        self._numbers = tuple(numbers)
        self._undo = ExitStack()
        self._pipe: tuple[int, int]

    def wait(self) -> signal.Signals:
        """Returns when one of the signals has come, with that signal."""
        select.select([self._pipe[0]], [], [])
        return signal.Signals(os.read(self._pipe[0], 1)[0])

    def within(self, seconds: float) -> bool:
        """Waits so long at most; True when one of the signals has come, which `wait` still returns."""
        return bool(select.select([self._pipe[0]], [], [], seconds)[0])

    def __enter__(self) -> Self:
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for end in self._pipe:
            self._undo.callback(os.close, end)
        self._undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._pipe[1]))
        for number in self._numbers:
            self._undo.callback(signal.signal, number, signal.signal(number, _taken))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def _taken(number: int, frame: FrameType | None) -> None:
    """The byte in the pipe says it all."""
