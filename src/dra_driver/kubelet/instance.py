"""Which instances of a driver live on a node, and which files are theirs.

One instance has the plugin directory to itself. In a rolling update two pods share it: each has the pod's UID in the names of its sockets and holds
the lock of a file that is named after it as long as it lives, so that "is it alive?" is a question to the kernel and not to a record. While an
instance starts it holds the directory's own lock: nobody else starts meanwhile, and what the dead left behind is removed by one alone.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dra_driver.errors import HostError, InstanceConflictError
from dra_driver.kubelet.server import LONGEST_PATH, check_path, is_served

log = logging.getLogger(__name__)

PATIENCE = 10.0  # seconds: another instance starts meanwhile, and opens its journal
PROBED = 1.0  # seconds: somebody may be asking for our lock at this moment, to learn whether we live
_PAUSE = 0.02
_POD_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def is_uid(text: str) -> bool:
    """Whether the text can be a pod's UID, and so a part of a file's name: letters, digits and '-', 63 at most, no '-' at the beginning."""
    return len(text) <= 63 and text.isascii() and text[:1].isalnum() and text.replace("-", "").isalnum()


class SocketNames(msgspec.Struct, frozen=True):
    """Where an instance serves and where it registers."""

    service: Path
    registrar: Path

    @classmethod
    def of(cls, driver: str, uid: str, *, plugin: Path, registry: Path) -> SocketNames:
        """The names that the kubelet's own helper library uses, so that each recognizes the other's. HostError where a path has no room for them."""
        if not uid:
            names = cls(plugin / "dra.sock", registry / f"{driver}-reg.sock")
        else:
            short, long = _digest(uid.encode(), 8), _digest(f"{driver}\0{uid}".encode(), 16)
            names = cls(
                _first_that_fits(plugin / f"dra-{uid}.sock", plugin / f"dra-{short}.sock"),
                _first_that_fits(registry / f"{driver}-{uid}-reg.sock", registry / f"{driver}-{short}-reg.sock", registry / f"dra-{long}-reg.sock"),
            )
        check_path(names.service)
        check_path(names.registrar)
        return names


class Instance:
    """This process in the plugin directory `plugin`. `uid` is the UID of its pod; "" is an instance that tolerates no other beside it.

    HostError when `uid` cannot be part of a file's name or the sockets' paths are too long.
    """

    def __init__(self, driver: str, uid: str, *, plugin: Path, registry: Path) -> None:
        if uid and not is_uid(uid):
            raise HostError(f"instance {uid!r}: need the pod's UID, letters, digits and '-', 63 at most")
        self.uid = uid
        self.sockets = SocketNames.of(driver, uid, plugin=plugin, registry=registry)
        self.alone = False
        """Whether no other instance lives; holds as long as `entering` lasts."""
        self._driver = driver
        self._plugin, self._registry = plugin, registry
        self._held: dict[Path, int] = {}

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """Takes the instance's place, until `leave`. Nobody else starts while the body runs, so what it does to shared files is safe.

        HostError when the directory cannot be used, InstanceConflictError when another instance is in the way; nothing is held then.
        """
        starting = self._lock_directory()
        try:
            self._take_place()
            self._remove_leftovers()
            yield
            if self.uid and self.alone:  # others may come now; while they do, they wait for the directory's lock that we hold
                fcntl.flock(self._held[self._plugin / "instance.lock"], fcntl.LOCK_SH)
        except BaseException:
            self.leave()
            raise
        finally:
            self.alone = False
            os.close(starting)

    def leave(self) -> None:
        """Gives the place back. The kernel does that as well when the process ends in whatever way."""
        own = self._lock_file(self.uid)
        if own in self._held and _is_same_file(own, self._held[own]):
            own.unlink()
        while self._held:
            os.close(self._held.popitem()[1])

    def lives(self, uid: str) -> bool:
        """Whether the instance with this UID is alive."""
        if uid == self.uid:
            return bool(self._held)
        try:
            descriptor = os.open(self._lock_file(uid), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def siblings(self) -> dict[str, SocketNames]:
        """The other instances that live, by UID."""
        return {uid: names for uid, names in self._known().items() if uid != self.uid and self.lives(uid)}

    def problem(self) -> str:
        """Why the place is lost although we hold its locks, "" while all is well: somebody has put another directory there."""
        for path, descriptor in self._held.items():
            if not _is_same_file(path, descriptor):
                return f"{path} is not the file that this instance has locked; the plugin directory was removed or replaced"
        return ""

    def _lock_file(self, uid: str) -> Path:
        return self._plugin / f"instance-{uid}.lock"

    def _known(self) -> dict[str, SocketNames]:
        """All instances that have a lock file, alive or dead."""
        found = {}
        for path in self._plugin.glob("instance-*.lock"):
            uid = path.name.removeprefix("instance-").removesuffix(".lock")
            with contextlib.suppress(HostError):  # a name that is none of ours
                found[uid] = SocketNames.of(self._driver, uid, plugin=self._plugin, registry=self._registry)
        return found

    def _lock_directory(self) -> int:
        try:
            self._plugin.mkdir(parents=True, exist_ok=True, mode=0o750)
            descriptor = os.open(self._plugin, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(f"plugin directory {self._plugin}: {error.strerror}; it must be writable for the driver") from error
        if not self._lock(descriptor, fcntl.LOCK_EX, PATIENCE):
            os.close(descriptor)
            raise InstanceConflictError(
                f"plugin directory {self._plugin}: another instance has been starting for {PATIENCE:g} s; stop that one first"
            )
        return descriptor

    def _take_place(self) -> None:
        if self.uid and not self._hold(self._lock_file(self.uid), fcntl.LOCK_EX, PROBED):
            raise InstanceConflictError(f"plugin directory {self._plugin}: an instance with pod UID {self.uid} is alive already; stop that one first")
        shared = self._plugin / "instance.lock"
        self.alone = self._hold(shared, fcntl.LOCK_EX, 0)
        if self.alone or (self.uid and self._hold(shared, fcntl.LOCK_SH, 0)):
            return
        raise InstanceConflictError(
            f"plugin directory {self._plugin} is used by another live instance; stop that one first, "
            "or give each instance the UID of its pod (POD_UID) so that one can take over from the other"
        )

    def _hold(self, path: Path, operation: int, patience: float) -> bool:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostError(f"plugin directory {self._plugin}: {error.strerror}; it must be writable for the driver") from error
        if self._lock(descriptor, operation, patience):
            self._held[path] = descriptor
            return True
        os.close(descriptor)
        return False

    def _lock(self, descriptor: int, operation: int, patience: float) -> bool:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(_PAUSE)
            except OSError as error:
                os.close(descriptor)
                text = f"plugin directory {self._plugin}: cannot be locked: {error.strerror}; it must be on a local file system"
                raise HostError(text) from error
            else:
                return True

    def _remove_leftovers(self) -> None:
        """Sockets of the dead, which the kubelet would dial for ever. Other drivers' and living siblings' stay."""
        living = self.siblings()
        dead = {uid: names for uid, names in self._known().items() if uid != self.uid and uid not in living}
        keep = {path for names in living.values() for path in (names.service, names.registrar)}
        pattern = re.compile(rf"{re.escape(self._driver)}(?:-{_POD_UID})?-reg\.sock")
        suspects = {path for names in dead.values() for path in (names.service, names.registrar)}
        suspects |= {path for path in self._registry.glob(f"{self._driver}-*.sock") if pattern.fullmatch(path.name)}
        suspects |= {*self._plugin.glob("dra.sock"), *self._plugin.glob("dra-*.sock"), *self._plugin.glob(".??????")}
        for path in sorted(suspects - keep):
            _remove_dead_socket(path)
        for uid in dead:
            self._lock_file(uid).unlink(missing_ok=True)


def _remove_dead_socket(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not is_served(path):
            path.unlink()
            log.info("leftover socket removed", extra={"socket": str(path)})


def _is_same_file(path: Path, descriptor: int) -> bool:
    held = os.fstat(descriptor)
    try:
        found = path.lstat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def _digest(text: bytes, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()[:size]).decode().rstrip("=")


def _first_that_fits(*paths: Path) -> Path:
    """The first path that a socket can have, else the last."""
    return next((path for path in paths if len(os.fsencode(path)) <= LONGEST_PATH), paths[-1])
