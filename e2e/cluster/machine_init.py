"""Pid 1 of a machine: makes the new namespaces a place to live in, says so, and then only collects the dead.

Run by `machine` as a script. Its argument is a JSON file with `hostname`, `mounts` (pairs of a source directory or file and the path it appears at)
and `sysctls` (path below /proc/sys to value; one whose kernel module is missing is left out). It imports the standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def prepare(hostname: str, mounts: list[tuple[str, str]], sysctls: dict[str, str]) -> None:
    socket.sethostname(hostname)
    mount("-t", "proc", "proc", "/proc")
    for source, target in mounts:
        mount("--bind", source, target)
    # A kubelet needs mounts of containers to spread within the node; nothing spreads to the host, whose mounts these no longer are.
    mount("--make-rshared", "/")
    for name, value in sysctls.items():
        path = Path("/proc/sys", name)
        if path.exists():
            path.write_text(value)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def reap_forever() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    prepare(**json.loads(Path(sys.argv[1]).read_text()))
    print("ready", flush=True)
    os.dup2(2, 1)  # closes the pipe: whoever reads it knows that no more comes
    reap_forever()
