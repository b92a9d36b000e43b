"""gRPC servers on unix sockets, with the care that socket files need.

A socket file outlives the process that made it, binding silently replaces it, and its path holds at most 107 bytes. So: check the length first,
refuse to replace a socket that somebody serves, remove a dead one, and at the end remove only the file that we made ourselves.

gRPC removes, when it stops, whatever then has the name that it bound. So it binds a hidden name (the kubelet ignores dot files), which is then linked
to the public one: the file appears when it is served already, replaces nothing, and its removal is ours alone.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from dra_driver.errors import HostError, InstanceConflictError

log = logging.getLogger(__name__)

LONGEST_PATH = 107  # bytes of sockaddr_un.sun_path without the terminating NUL
REPLACED_GRACE = 40.0  # seconds for the calls of a server whose socket file was lost


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


PROBE_AGENT = "dra-driver-probe"
"""What the user agent of our own calls to sockets begins with."""

_PROBE_OPTIONS = [
    ("grpc.default_authority", "localhost"),  # servers of other languages refuse the percent-encoded path that would be sent
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", PROBE_AGENT),
]


def dial(path: Path) -> grpc.Channel:
    """A connection of its own to a socket, to see who answers there and whether."""
    return grpc.insecure_channel(f"unix:{path}", options=_PROBE_OPTIONS)


class Place(enum.Enum):
    """Whose the file at a socket's path is: our own, nobody's, or made by another process."""

    OURS, VACANT, TAKEN = range(3)


class SocketServer:
    """One gRPC server on one unix socket."""

    def __init__(self, path: Path, *, workers: int, interceptors: Sequence[grpc.ServerInterceptor] = ()) -> None:
        check_path(path)
        self.path = path
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix=path.stem)
        self._services: list[Callable[[grpc.Server], None]] = []
        self._interceptors = list(interceptors)
        self._grpc: grpc.Server | None = None
        self._bound: set[str] = set()
        self._inode: int | None = None

    def add(self, service: Callable[[grpc.Server], None]) -> None:
        """One service more, from the next `start` on. It adds itself to the server that it is given, again whenever the socket is made anew."""
        self._services.append(service)

    def start(self) -> None:
        """Binds and serves. HostError when the directory cannot be used, InstanceConflictError when the socket is alive.

        When it serves already and its file is gone, a new socket takes the place of the old one, whose running calls end in peace.
        """
        self.remove_leftover()
        server = grpc.server(self._workers, interceptors=self._interceptors, options=[("grpc.so_reuseport", 0)])
        for add in self._services:
            add(server)
        hidden = self.path.with_name(f".{secrets.token_hex(3)}")  # other drivers start in this directory too, perhaps with our process number
        try:
            server.add_insecure_port(f"unix:{hidden}")
            server.start()
            inode = hidden.stat().st_ino
            self.path.hardlink_to(hidden)
            hidden.unlink()
        except (RuntimeError, OSError) as error:
            server.stop(None)
            if isinstance(error, FileExistsError):
                text = f"socket {self.path} was made by another process at this moment; stop that instance of the driver"
                raise InstanceConflictError(text) from error
            raise HostError(f"socket {self.path}: cannot be created: {error}; the directory must exist and be writable for the driver") from error
        if self._grpc is not None:
            self._grpc.stop(REPLACED_GRACE)
        self._grpc, self._inode = server, inode
        self._bound.add(str(hidden))
        log.info("serving", extra={"socket": str(self.path)})

    def place(self) -> Place:
        """What has our name in the directory."""
        try:
            found = self.path.lstat().st_ino
        except OSError:
            return Place.VACANT
        # As long as we serve, the kernel gives our inode's number to no other file.
        return Place.OURS if found == self._inode else Place.TAKEN

    def connections(self) -> int:
        """How many clients are connected now.

        Counted among our own descriptors: `/proc/net/unix` of a pod does not show the kubelet's end, nor the sockets that it made us accept.
        """
        return sum(_is_connection(int(name), self._bound) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208

    def unlink(self) -> None:
        """Removes the socket file if it is still ours; connections that exist live on."""
        if self._grpc is not None and self.place() is Place.OURS:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def stop(self, grace: float) -> None:
        """Refuses new calls, gives running ones `grace` seconds, removes the socket file."""
        self.unlink()
        if self._grpc is not None:
            self._grpc.stop(grace).wait(grace + 1)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def remove_leftover(self) -> None:
        """Removes a socket in our place that nobody serves. InstanceConflictError when somebody does, HostError when it is something else."""
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


def _is_connection(descriptor: int, bound: Collection[str]) -> bool:
    """Whether the descriptor is a connection that was accepted on a socket that was bound to one of these paths."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as one:
            return one.family == socket.AF_UNIX and one.getsockname() in bound and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:  # closed meanwhile
        return False
