"""A process that dies at a chosen step of what it does to claims.

A step is a change that outlives the process: a commit, a file that is opened for writing, renamed or removed. Nobody lists them: the interpreter's
audit events and SQLite's trace tell them as they come, so that a new step in the code is a new step here.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.errors import DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import Connection
from dra_driver.kubelet.driver import HostChange
from dra_driver.kubelet.journal import ClaimKey
from tests.kubelet.host import Host
from tests.kubelet.toy import ToyDriver

WANTS = {
    "toy-1": [HostChange("mode", "fast"), HostChange("power", "high")],
    "toy-2": [HostChange("mode", "fast")],
    "toy-3": [HostChange("mode", "slow")],
}


@dataclass(frozen=True)
class Scenario:
    """`operation` on `claims` on a node that is in `directory`; `die_at` is the number of the step before which the process is killed."""

    operation: str
    claims: tuple[ClaimKey, ...]
    directory: Path
    connection: Connection
    die_at: int | None = None


def driver() -> ToyDriver:
    one = ToyDriver()
    one.wants = WANTS
    one.telling = {"toy-4"}
    return one


class Steps:
    """Sees the steps from construction on, and ends the process at one of them."""

    def __init__(self, directory: Path, die_at: int | None) -> None:
        self.seen: list[str] = []
        self._directory = str(directory)
        self._die_at = die_at
        sys.addaudithook(self._audit)

    def trace(self, connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda statement: self._step("commit") if statement == "COMMIT" else None)

    def end(self) -> None:
        """After the last change, and before the answer."""
        self._step("answer")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, os.PathLike)) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
                self._file("write", path)
        elif event in {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}:
            self._file(event.removeprefix("os."), arguments[0])

    def _file(self, what: str, path: Any) -> None:
        if isinstance(path, int):
            return  # a descriptor: its opening was the step
        text = os.fspath(path)
        if text.startswith(self._directory):
            place = "metadata" if "-metadata" in text else Path(text).name if what == "mkdir" else Path(text).parent.name
            self._step(f"{what} {place}")

    def _step(self, name: str) -> None:
        if len(self.seen) == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(name)


def run(scenario: Scenario, tell: Callable[[object], None]) -> None:
    """In a process of its own. Tells the steps and the outcomes."""
    client = Client(scenario.connection, "crashing")
    host = Host(client, scenario.directory, driver(), restore=scenario.operation != "restore")
    steps = Steps(scenario.directory, scenario.die_at)
    steps.trace(host.database._writing)
    outcomes: dict[str, Any] = {}
    if scenario.operation == "prepare":
        outcomes |= host.keeper.prepare(scenario.claims)
    elif scenario.operation == "unprepare":
        outcomes |= host.keeper.unprepare(scenario.claims)
    else:
        host.keeper.restore()
    steps.end()
    tell((steps.seen, {uid: str(one) for uid, one in outcomes.items() if isinstance(one, DraError)}))
