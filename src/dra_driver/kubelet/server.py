"""gRPC servers on unix sockets, with the care that socket files need.

A socket file outlives the process that made it, binding silently replaces it, and its path holds at most 107 bytes. So: check the length first,
refuse to replace a socket that somebody serves, remove a dead one, and at the end remove only the file that we made ourselves.

gRPC removes, when it stops, whatever then has the name that it bound. So it binds a hidden name (the kubelet ignores dot files), which is then linked
to the public one: the file appears when it is served already, replaces nothing, and its removal is ours alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from dra_driver.errors import HostError, InstanceConflictError

log = logging.getLogger(__name__)

LONGEST_PATH = 107  # bytes of sockaddr_un.sun_path without the terminating NUL


def check_path(path: Path) -> None:
    """HostError when a unix socket cannot have this path."""
    length = len(os.fsencode(path))
    if not path.is_absolute() or length > LONGEST_PATH:
        raise HostError(f"socket path {path}: {length} bytes, need an absolute path of {LONGEST_PATH} bytes at most; choose a shorter directory")


def is_served(path: Path) -> bool:
    """Whether somebody accepts connections on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full backlog, or no permission: it belongs to somebody
        return True


class SocketServer:
    """One gRPC server on one unix socket. Register services on `grpc` before `start`."""

    def __init__(self, path: Path, *, workers: int, interceptors: Sequence[grpc.ServerInterceptor] = ()) -> None:
        check_path(path)
        self.path = path
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix=path.stem)
        self.grpc = grpc.server(self._workers, interceptors=list(interceptors), options=[("grpc.so_reuseport", 0)])
        self._inode: int | None = None

    def start(self) -> None:
        """Binds and serves. HostError when the directory cannot be used, InstanceConflictError when the socket is alive."""
        self._remove_leftover()
        hidden = self.path.with_name(f".{secrets.token_hex(3)}")  # other drivers start in this directory too, perhaps with our process number
        try:
            self.grpc.add_insecure_port(f"unix:{hidden}")
            self.grpc.start()
            self._inode = hidden.stat().st_ino
            self.path.hardlink_to(hidden)
            hidden.unlink()
        except FileExistsError as error:
            raise InstanceConflictError(f"socket {self.path} was made by another process at this moment; stop that instance of the driver") from error
        except (RuntimeError, OSError) as error:
            raise HostError(f"socket {self.path}: cannot be created: {error}; the directory must exist and be writable for the driver") from error
        log.info("serving", extra={"socket": str(self.path)})

    def unlink(self) -> None:
        """Removes the socket file if it is still ours; connections that exist live on."""
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    def stop(self, grace: float) -> None:
        """Refuses new calls, gives running ones `grace` seconds, removes the socket file."""
        self.unlink()
        self.grpc.stop(grace).wait(grace + 1)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _remove_leftover(self) -> None:
        try:
            mode = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise HostError(f"socket {self.path}: {error.strerror}; the directory must be readable for the driver") from error
        if not stat.S_ISSOCK(mode):
            raise HostError(f"socket {self.path}: found {stat.filemode(mode)} in its place; remove it")
        if is_served(self.path):
            raise InstanceConflictError(f"socket {self.path} is served by another process; stop that instance of the driver first")
        log.info("leftover socket removed", extra={"socket": str(self.path)})
        self.path.unlink(missing_ok=True)
