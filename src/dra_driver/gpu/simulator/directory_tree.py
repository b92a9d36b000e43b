"""A directory tree described as data, and made true on disk: what is right stays untouched, what is wrong is replaced, what is extra goes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dra_driver.daemon.paths import DeviceNumbers
from dra_driver.errors import HostError

_MARKER = ".simulated-driver-root"
"""Says that the directory is ours to rewrite."""


@dataclass(frozen=True)
class File:
    """A regular file."""

    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Node:
    """A character device; where the process may not make one, a regular file whose content tells its numbers."""

    major: int
    minor: int

    @property
    def stand_in(self) -> File:
        """The regular file."""
        return File(f"c {self.major} {self.minor}\n", 0o666)


Entry = File | Link | Node

_MARK = File("Made by dra-driver: anything else in here is removed.\n")


def make_true(root: Path, entries: Mapping[str, Entry], *, real_nodes: bool = True) -> None:
    """Makes `root` hold exactly `entries` (paths below it), real device nodes only where wanted and possible.

    HostError when `root` cannot be written, or holds files and was not made by us.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()) and not (root / _MARKER).exists():
            raise HostError(f"simulated driver root {root}: the directory holds other files; choose an empty or a new one")
        wanted: dict[Path, Entry] = {root / _MARKER: _MARK}
        # First of all: what is left when this is interrupted must be known as ours.
        if not _is(root / _MARKER, _MARK):
            _put(root / _MARKER, _MARK)
        real_nodes = real_nodes and _may_make_nodes(root)
        for path, entry in entries.items():
            wanted[root / path] = entry.stand_in if isinstance(entry, Node) and not real_nodes else entry
        _remove_others(root, wanted)
        for place, entry in wanted.items():
            if not _is(place, entry):
                _put(place, entry)
    except OSError as error:
        raise HostError(
            f"simulated driver root {root}: {error.filename or root}: {error.strerror}; choose a directory that can be written"
        ) from error


def stand_in_numbers(path: Path) -> DeviceNumbers | None:
    """What a stand-in for a device node tells; None where `path` is none."""
    if not path.is_file():
        return None
    match path.read_text().split():
        case ["c", major, minor]:
            return DeviceNumbers("c", int(major), int(minor))
    return None


def _may_make_nodes(root: Path) -> bool:
    probe = root / ".probe"
    probe.unlink(missing_ok=True)
    try:
        os.mknod(probe, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        return False
    probe.unlink()
    return True


def _remove_others(root: Path, wanted: Mapping[Path, Entry]) -> None:
    directories = {parent for place in wanted for parent in place.parents}
    for place, below, files in os.walk(root):
        for name in files:
            if Path(place, name) not in wanted:
                Path(place, name).unlink()
        for name in list(below):
            path = Path(place, name)
            if path.is_symlink():
                if path not in wanted:
                    path.unlink()
            elif path not in directories:
                shutil.rmtree(path)
                below.remove(name)


def _is(path: Path, entry: Entry) -> bool:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if isinstance(entry, Link):
        return stat.S_ISLNK(found.st_mode) and os.readlink(path) == entry.target  # noqa: PTH115  (the text, not a path)
    if isinstance(entry, Node):
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(entry.major, entry.minor)
    return stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == entry.mode and path.read_text() == entry.content


def _put(path: Path, entry: Entry) -> None:
    """Replaces in one step, so that a reader sees the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    if isinstance(entry, Link):
        new.symlink_to(entry.target)
    elif isinstance(entry, Node):
        os.mknod(new, 0o666 | stat.S_IFCHR, os.makedev(entry.major, entry.minor))
        new.chmod(0o666)
    else:
        new.write_text(entry.content)
        new.chmod(entry.mode)
    new.replace(path)
