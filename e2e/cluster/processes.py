"""Processes of the cluster: started, found again by another run, and ended.

A *part* is a process with a name, a log and a record on disk. A pid alone proves nothing: a record left by a killed run may name a pid that
the kernel has since given to a stranger. So a record holds the process's start time and the boot it belongs to, and signals go through a
pidfd that was opened before the record was checked.

A run may be killed between starting a process and recording it. Therefore every process also carries a mark in its environment,
by which `marked` finds what no record names.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dra_driver.errors import HostError
from e2e.cluster.requirements import SYSTEM_PATH

MARK = "DRA_DRIVER_E2E_STATE"
KILL_LIMIT = 20.0  # seconds for the kernel to end a process after SIGKILL
POLL = 0.05  # seconds between two looks at a part that comes up

_STATE, _START = 0, 19  # fields 3 and 22 of /proc/PID/stat: one letter; clock ticks since boot


class PartError(HostError):
    """One part of the cluster did not come up, ended, or cannot be ended. The text ends with the last lines of its log."""


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    born: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has `pid` now, be it a zombie. Raises ProcessLookupError."""
        return cls(pid, int(_stat(pid)[_START]), boot_id())

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        try:
            return Process.of(self.pid) == self and _stat(self.pid)[_STATE] not in "ZX"
        except ProcessLookupError:
            return False

    def signal(self, number: signal.Signals, limit: float) -> bool:
        """Send a signal and wait until the process has ended, at most `limit` seconds. True where it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if self.alive():
                signal.pidfd_send_signal(handle, number)
                select.select([handle], [], [], limit)
            if self.alive():
                return False
        finally:
            os.close(handle)
        self._reap()
        return True

    def _reap(self) -> None:
        """A pid namespace does not go while a zombie of it waits for its parent, which may be this very process."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the third field on. Raises ProcessLookupError."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return text.rpartition(")")[2].split()  # the command's name, field 2, may hold spaces and brackets


def _wait_for_environment(process: Process) -> None:
    """The kernel shows the environment of a new program a moment after it runs; until then `marked` would not find it."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end between the two looks
        while process.alive() and not Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.001)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def environment(state: Path, tools: Path) -> dict[str, str]:
    """What every process of the cluster gets: nothing of the caller's, so that no proxy or locale setting leaks in."""
    return {"PATH": f"{tools}:{SYSTEM_PATH}", "HOME": str(state), "LANG": "C.UTF-8", MARK: str(state)}


def marked(state: Path | None = None) -> dict[Process, Path]:
    """The running processes that carry the mark of the cluster in `state` (None: of any), with that cluster's state directory."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            process = Process.of(int(directory.name))
            variables = (directory / "environ").read_bytes().split(b"\0")  # a zombie has none
        except OSError:  # gone meanwhile
            continue
        mark = next((item for item in variables if item.startswith(f"{MARK}=".encode())), None)
        if mark is not None and process.pid != os.getpid():
            owner = Path(os.fsdecode(mark.partition(b"=")[2]))
            if state in {None, owner}:
                found[process] = owner
    return found


def last_lines(path: Path, count: int = 15) -> str:
    """The end of a log, for an error message."""
    try:
        with path.open(errors="replace") as file:
            return "".join(f"    {line[:300].rstrip()}\n" for line in deque(file, count)).rstrip() or "    (empty)"
    except FileNotFoundError:
        return "    (no such file)"


@dataclass(frozen=True)
class Part:
    """A process with a name. `since` is when it was started, in seconds since the epoch."""

    name: str
    process: Process
    since: float


class Parts:
    """The named processes of one cluster, kept in its state directory: `run/NAME.json` and `log/NAME.log`."""

    def __init__(self, state: Path, tools: Path) -> None:
        self.directory = state / "run"
        self._log = state / "log"
        self.environment = environment(state, tools)

    def log(self, name: str) -> Path:
        return self._log / f"{name}.log"

    def start(self, name: str, command: list[str], *, output: int | None = None) -> Part:
        """Start a process of a session of its own. It writes to its log; `output` is a file descriptor for its standard output instead."""
        with self.log(name).open("ab") as log:
            # Not subprocess: a part outlives this program and is waited for by nobody here.
            pid = os.posix_spawnp(
                command[0],
                command,
                self.environment,
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these; containers would inherit that
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno() if output is None else output, 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
            )
        part = Part(name, Process.of(pid), time.time())
        _wait_for_environment(part.process)
        record = self.directory / f"{name}.json"
        record.with_suffix(".partial").write_text(json.dumps(asdict(part)))
        record.with_suffix(".partial").rename(record)
        return part

    def find(self, name: str) -> Part | None:
        """The part as recorded, whether it still runs or not."""
        try:
            record = json.loads((self.directory / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return Part(record["name"], Process(**record["process"]), record["since"])

    def process(self, name: str) -> Process:
        """The running process. Raises PartError where the part does not run."""
        part = self.find(name)
        if part is None or not part.process.alive():
            raise self.error(name, "does not run")
        return part.process

    def stop(self, name: str, limit: float = 10.0) -> None:
        """End a part with SIGTERM, after `limit` seconds with SIGKILL, and forget it. Nothing happens where it does not run."""
        part = self.find(name)
        if part is None:
            return
        if not part.process.signal(signal.SIGTERM, limit) and not part.process.signal(signal.SIGKILL, KILL_LIMIT):
            raise self.error(name, f"cannot be ended (pid {part.process.pid})")
        (self.directory / f"{name}.json").unlink()

    def wait(self, name: str, ready: Callable[[], bool], limit: float = 60.0, needs: Iterable[str] = ()) -> None:
        """Wait until `ready()` holds. Raises PartError, of whichever of the part and those it `needs` ended, or after `limit` seconds."""
        end = time.monotonic() + limit
        while not ready():
            for part in (*needs, name):
                record = self.find(part)
                if record is None or not record.process.alive():
                    raise self.error(part, "ended while it came up")
            if time.monotonic() > end:
                raise self.error(name, f"is not ready after {limit:.0f} s")
            time.sleep(POLL)

    def error(self, name: str, what: str) -> PartError:
        log = self.log(name)
        return PartError(f"{name} {what}. Last lines of {log}:\n{last_lines(log)}")


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL to all of them at once, then wait for each. Raises HostError where one does not go."""
    remaining = list(processes)
    for process in remaining:
        process.signal(signal.SIGKILL, 0)
    for process in remaining:
        if not process.signal(signal.SIGKILL, KILL_LIMIT):
            raise HostError(f"process {process.pid} does not end on SIGKILL; look at /proc/{process.pid}/stack for what it waits for")
