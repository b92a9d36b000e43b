"""Sockets: lengths, leftovers, other instances."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import HostError, InstanceConflictError
from dra_driver.kubelet import server
from dra_driver.kubelet.server import SocketServer


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="dra") as directory:
        yield Path(directory)


@contextlib.contextmanager
def serving(path: Path) -> Iterator[SocketServer]:
    one = SocketServer(path, workers=1)
    one.start()
    try:
        yield one
    finally:
        one.stop(0)


def padded(directory: Path, length: int) -> Path:
    return directory / ("s" * (length - len(str(directory)) - 1))


def test_a_path_of_107_bytes_is_served(short: Path) -> None:
    path = padded(short, 107)
    with serving(path):
        assert server.is_served(path)
    assert not path.exists()


def test_a_path_of_108_bytes_is_refused_with_its_length(short: Path) -> None:
    with pytest.raises(HostError, match="108 bytes, need an absolute path of 107 bytes at most"):
        SocketServer(padded(short, 108), workers=1)


def test_bytes_count_not_characters(short: Path) -> None:
    with pytest.raises(HostError, match="bytes"):
        SocketServer(short / ("ü" * 60), workers=1)


def test_a_dead_socket_is_removed(short: Path) -> None:
    path = short / "dra.sock"
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(path))
    with serving(path):
        assert server.is_served(path)


def test_a_live_socket_is_refused_and_goes_on(short: Path) -> None:
    path = short / "dra.sock"
    with serving(path):
        with pytest.raises(InstanceConflictError, match="served by another process"):
            SocketServer(path, workers=1).start()
        assert server.is_served(path)


def test_something_else_in_the_sockets_place_is_never_removed(short: Path) -> None:
    path = short / "dra.sock"
    path.write_text("precious")
    with pytest.raises(HostError, match="remove it"):
        SocketServer(path, workers=1).start()
    assert path.read_text() == "precious"


def test_only_our_own_file_is_removed_at_the_end(short: Path) -> None:
    path = short / "dra.sock"
    ours = SocketServer(path, workers=1)
    ours.start()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        ours.stop(0)
        assert path.exists(), "a socket that another process made in our place"


def test_a_missing_directory_is_named(short: Path) -> None:
    with pytest.raises(HostError, match=r"missing/dra\.sock: cannot be created"):
        SocketServer(short / "missing" / "dra.sock", workers=1).start()
