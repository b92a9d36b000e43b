"""A machine: network, mount, pid and uts namespaces, held by a pid 1 of their own (`machine_init`).

Killing pid 1 is a power failure: the kernel ends every process inside, and the mounts and network devices go with them.

A process inside is started in two steps. Its pid namespace comes from the thread that forks it: `setns` and `unshare` with CLONE_NEWPID
change nothing but the namespace of the thread's *next children*, so it is set for the moment of the fork. All others are entered by nsenter,
which replaces itself with the command. So a process inside is a child like any other here: its pid is its own, signals and exit status are direct.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from e2e.cluster.processes import Part, Parts

INIT = Path(__file__).with_name("machine_init.py")

_CLONE_NEWPID = 0x20000000
_libc = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns came with Python 3.12


class Machine:
    """One machine by name. It runs between `start` and the end of its pid 1, which is the part of that name."""

    def __init__(self, name: str, parts: Parts, mounts: Mapping[str, Path] | None = None, sysctls: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.parts = parts
        self.mounts = dict(mounts or {})
        self.sysctls = dict(sysctls or {})

    @property
    def pid(self) -> int:
        """Pid 1 as the host counts. Raises PartError where the machine does not run."""
        return self.parts.process(self.name).pid

    def start(self) -> None:
        """Make the namespaces; returns when all mounts are there. Raises PartError."""
        mounts = [(str(source), target) for target, source in self.mounts.items()]
        description = self.parts.directory / f"{self.name}-machine.json"
        description.write_text(json.dumps({"hostname": self.name, "mounts": mounts, "sysctls": self.sysctls}, indent=2))
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as ready:
            try:
                with _children_in_new_pid_namespace():
                    # -I -S: neither this environment's packages nor its settings reach a process that outlives it.
                    command = ["unshare", "--net", "--mount", "--uts", "--", sys.executable, "-I", "-S", str(INIT), str(description)]
                    self.parts.start(self.name, command, output=writer)
            finally:
                os.close(writer)
            if ready.read() != b"ready\n":
                raise self.parts.error(self.name, "did not come up")

    def start_part(self, name: str, command: Sequence[str]) -> Part:
        """Start a part of the cluster inside."""
        pid = self.pid
        with _children_in_pid_namespace_of(pid):
            return self.parts.start(name, _enter(pid, command))

    def spawn(self, command: Sequence[str], *, log: Path | IO[bytes] | None = None, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process inside and return it as any other child: `pid`, `terminate()`, `kill()`, `wait()`, `returncode`.

        `log` receives its output (a path is appended to; None: discarded); `env` adds to the cluster's plain environment.
        The working directory is /. It ends with the machine at the latest.
        """
        if isinstance(log, Path):
            with log.open("ab") as sink:
                return self.spawn(command, log=sink, env=env)
        return self._popen(command, env, stdin=subprocess.DEVNULL, stdout=log or subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end, as `subprocess.run` with captured text does."""
        pipe = subprocess.PIPE
        with self._popen(command, env, stdin=subprocess.DEVNULL if stdin is None else pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                output, errors = process.communicate(stdin, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(list(command), process.returncode, output, errors)
        if check:
            done.check_returncode()
        return done

    def attach(self, command: Sequence[str]) -> int:
        """Run a command inside on this program's own terminal; its exit status."""
        with self._popen(command, None) as process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, whose answer counts
            return process.wait()

    def _popen(self, command: Sequence[str], env: Mapping[str, str] | None, **options: Any) -> subprocess.Popen[Any]:
        pid = self.pid
        with _children_in_pid_namespace_of(pid):
            return subprocess.Popen(_enter(pid, command), env={**self.parts.environment, **(env or {})}, **options)


def _enter(pid: int, command: Sequence[str]) -> list[str]:
    return ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--", *command]


@contextmanager
def _children_in_new_pid_namespace() -> Iterator[None]:
    with Path("/proc/self/ns/pid").open("rb") as own:
        _check(_libc.unshare(_CLONE_NEWPID))
        try:
            yield
        finally:
            _check(_libc.setns(own.fileno(), _CLONE_NEWPID))


@contextmanager
def _children_in_pid_namespace_of(pid: int) -> Iterator[None]:
    with Path("/proc/self/ns/pid").open("rb") as own, Path(f"/proc/{pid}/ns/pid").open("rb") as other:
        _check(_libc.setns(other.fileno(), _CLONE_NEWPID))
        try:
            yield
        finally:
            _check(_libc.setns(own.fileno(), _CLONE_NEWPID))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a pid namespace: {os.strerror(number)}")
