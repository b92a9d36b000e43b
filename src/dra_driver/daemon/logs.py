"""Logging: constant messages with keys and values; JSON lines in a cluster, readable lines on a terminal.

Write ``log.info("claim prepared", extra={"claim": "ns/name", "uid": uid})``. An error is logged once, where it is handled.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any, TextIO

LEVELS = ("debug", "info", "warning", "error")

operation: ContextVar[str] = ContextVar("operation", default="")  # what the thread works on; stands in each of its lines

_encode = json.JSONEncoder(default=str).encode  # made once: json.dumps would make one for each line
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    found = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return found | {"operation_id": operation.get()} if operation.get() else found


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts (RFC 3339, UTC), level, logger, msg, then the record's keys."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"ts": f"{moment}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "logger": record.name, "msg": record.getMessage()}
        line |= _extras(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line)


class ConsoleFormatter(logging.Formatter):
    """`HH:MM:SS level message key=value ...` for people."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        words = [moment, f"{record.levelname.lower():7}", record.getMessage()]
        words += [f"{key}={value}" for key, value in _extras(record).items()]
        if record.exc_info:
            words.append("\n" + self.formatException(record.exc_info))
        return " ".join(words)


def configure(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Sends everything of `level` (one of LEVELS) and above to `stream` (default stderr)."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(ConsoleFormatter() if target.isatty() else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # A record need not find out what no line tells (the logging HOWTO, "Optimization"): a quarter of what a line takes.
    for known in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, known, False)
    logging._srcfile = None  # noqa: SLF001
    root.setLevel(level.upper())


class Trouble:
    """Something that fails again and again: told when it begins, when its reason changes and when it ends, not at every attempt.

    `reason` is "" while all is well.
    """

    def __init__(self, logger: logging.Logger, failing: str, working: str, **about: object) -> None:
        self.reason = ""
        self._kind = ""
        self._log = logger
        self._failing, self._working, self._about = failing, working, about

    def tell(self, reason: str, *, kind: str = "") -> None:
        """The outcome of an attempt: why it failed, "" if it did not. Reasons of the same `kind` are one, however their texts differ."""
        before, kind_before = self.reason, self._kind
        self.reason, self._kind = reason, kind or reason
        if reason and self._kind != kind_before:
            self._log.error(self._failing, extra=self._about | {"error": reason})
        elif before and not reason:
            self._log.info(self._working, extra=self._about)
