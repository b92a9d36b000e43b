"""Instances of one driver on one node: names, locks, and what the dead leave behind."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import HostError, InstanceConflictError
from dra_driver.kubelet import instance
from dra_driver.kubelet.instance import Instance, SocketNames

DRIVER = "toy.example.com"
OLD, NEW = "0f3b1a1e-93a6-4c5d-8a34-0cbd9a1c6a01", "0f3b1a1e-93a6-4c5d-8a34-0cbd9a1c6a02"


@pytest.fixture
def places(short: Path) -> tuple[Path, Path]:
    plugin, registry = short / "plugin", short / "registry"
    registry.mkdir()
    return plugin, registry


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "PATIENCE", 0.1)
    monkeypatch.setattr(instance, "PROBED", 0.1)


@contextlib.contextmanager
def alive(places: tuple[Path, Path], uid: str, driver: str = DRIVER) -> Iterator[Instance]:
    one = Instance(driver, uid, plugin=places[0], registry=places[1])
    with one.entering():
        pass
    try:
        yield one
    finally:
        one.leave()


def dead_socket(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(path))
    return path


@contextlib.contextmanager
def living_socket(path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield path


def digest(text: str, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:size]).decode().rstrip("=")


def test_names_of_the_only_instance_and_of_one_of_two() -> None:
    plugin, registry = Path("/var/lib/kubelet/plugins/d"), Path("/var/lib/kubelet/plugins_registry")
    assert SocketNames.of("d", "", plugin=plugin, registry=registry) == SocketNames(plugin / "dra.sock", registry / "d-reg.sock")
    assert SocketNames.of("d", OLD, plugin=plugin, registry=registry) == SocketNames(plugin / f"dra-{OLD}.sock", registry / f"d-{OLD}-reg.sock")


def padded(length: int) -> Path:
    return Path("/" + "p" * (length - 1))


@pytest.mark.parametrize("length", [107, 108])
def test_of_the_registrar_s_names_the_first_that_a_socket_can_have_is_taken(length: int) -> None:
    driver = "d" * 40
    both = digest(f"{driver}\0{OLD}", 16)
    names = [f"{driver}-{OLD}-reg.sock", f"{driver}-{digest(OLD, 8)}-reg.sock", f"dra-{both}-reg.sock"]
    for name, shorter in zip(names, [*names[1:], None], strict=True):
        registry = padded(length - len(name) - 1)
        wanted = name if length == 107 else shorter
        if wanted is None:
            with pytest.raises(HostError, match="108 bytes, need an absolute path of 107 bytes at most"):
                SocketNames.of(driver, OLD, plugin=Path("/p"), registry=registry)
        else:
            assert SocketNames.of(driver, OLD, plugin=Path("/p"), registry=registry).registrar.name == wanted


@pytest.mark.parametrize("length", [107, 108])
def test_the_service_socket_has_a_shorter_name_too(length: int) -> None:
    names = [f"dra-{OLD}.sock", f"dra-{digest(OLD, 8)}.sock"]
    found = SocketNames.of("d", OLD, plugin=padded(length - len(names[0]) - 1), registry=Path("/r")).service
    assert found.name == names[length - 107]
    with pytest.raises(HostError, match="107 bytes at most"):
        SocketNames.of("d", OLD, plugin=padded(108 - len(names[1]) - 1), registry=Path("/r"))


@pytest.mark.parametrize("uid", ["../x", "a/b", "-a", "a" * 64, "a b"])
def test_what_cannot_be_part_of_a_file_s_name_is_refused(places: tuple[Path, Path], uid: str) -> None:
    with pytest.raises(HostError, match="need the pod's UID"):
        Instance(DRIVER, uid, plugin=places[0], registry=places[1])


def test_two_instances_with_pod_uids_live_beside_each_other(places: tuple[Path, Path]) -> None:
    with alive(places, OLD) as old:
        with alive(places, NEW) as new:
            assert old.siblings() == {NEW: new.sockets}
            assert new.siblings() == {OLD: old.sockets}
            assert old.lives(NEW)
            assert old.lives(OLD)
        assert old.siblings() == {}
        assert not old.lives(NEW)
    assert not list(places[0].glob("instance-*"))


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        pytest.param("", "", "is used by another live instance", id="two without pod UIDs"),
        pytest.param("", NEW, "is used by another live instance", id="one with it beside one without"),
        pytest.param(OLD, "", "is used by another live instance", id="one without it beside one with it"),
        pytest.param(OLD, OLD, f"an instance with pod UID {OLD} is alive already", id="the same twice"),
    ],
)
def test_another_instance_is_refused_and_the_first_keeps_its_place(places: tuple[Path, Path], first: str, second: str, told: str) -> None:
    with alive(places, first) as one:
        with pytest.raises(InstanceConflictError, match=told), alive(places, second):
            pass
        assert one.problem() == ""
        if second != first:
            assert one.siblings() == {}
        if first:
            assert one.lives(first)
    with alive(places, second):
        pass


def test_alone_is_who_starts_while_nobody_lives_and_nobody_else_starts_meanwhile(places: tuple[Path, Path]) -> None:
    for first in ("", OLD):
        one = Instance(DRIVER, first, plugin=places[0], registry=places[1])
        with one.entering():
            assert one.alone
            other = Instance(DRIVER, NEW, plugin=places[0], registry=places[1])
            with pytest.raises(InstanceConflictError, match="another instance has been starting for"), other.entering():
                pass
        one.leave()
    with alive(places, OLD):
        second = Instance(DRIVER, NEW, plugin=places[0], registry=places[1])
        with second.entering():
            assert not second.alone
        second.leave()


def test_a_start_that_fails_gives_its_place_back(places: tuple[Path, Path]) -> None:
    one = Instance(DRIVER, OLD, plugin=places[0], registry=places[1])
    with pytest.raises(ZeroDivisionError), one.entering():
        raise ZeroDivisionError
    with alive(places, ""):
        pass


def test_who_was_killed_lives_no_more(places: tuple[Path, Path]) -> None:
    code = (
        "import sys, time, pathlib\nfrom dra_driver.kubelet.instance import Instance\n"
        f"one = Instance({DRIVER!r}, {OLD!r}, plugin=pathlib.Path(sys.argv[1]), registry=pathlib.Path(sys.argv[2]))\n"
        "with one.entering(): pass\nprint('here', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, *map(str, places)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        with alive(places, NEW) as one:
            assert one.lives(OLD)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not one.lives(OLD)
    with alive(places, ""):  # and nobody has to remove anything before
        assert not list(places[0].glob("instance-*"))


def test_only_what_the_dead_of_this_driver_left_is_removed(places: tuple[Path, Path]) -> None:
    plugin, registry = places
    plugin.mkdir()
    static_pod = "4a2b" * 8
    gone = [
        dead_socket(plugin / "dra.sock"),
        dead_socket(plugin / f"dra-{OLD}.sock"),
        dead_socket(plugin / ".a1b2c3"),
        dead_socket(registry / f"{DRIVER}-reg.sock"),
        dead_socket(registry / f"{DRIVER}-{OLD}-reg.sock"),
        dead_socket(registry / f"{DRIVER}-{static_pod}-reg.sock"),  # its lock tells whose it is
        plugin / f"instance-{static_pod}.lock",
    ]
    gone[-1].touch()
    kept = [
        dead_socket(registry / "nic.example.com-reg.sock"),
        dead_socket(registry / f"nic.example.com-{OLD}-reg.sock"),
        dead_socket(registry / f"{DRIVER}-extra-reg.sock"),  # another driver, toy.example.com-extra
        dead_socket(registry / f"x{DRIVER}-reg.sock"),
        dead_socket(registry / "dra-0123456789abcdefghijkl-reg.sock"),
        dead_socket(registry / ".a1b2c3"),
        plugin / "state.db",
    ]
    kept[-1].touch()
    with alive(places, OLD) as sibling, living_socket(sibling.sockets.service), living_socket(registry / f"{DRIVER}-{'1' * 8}-reg.sock") as unknown:
        dead_socket(sibling.sockets.registrar)  # not served at this moment, but its owner lives
        with alive(places, NEW):
            assert sibling.sockets.service.exists()
            assert sibling.sockets.registrar.exists()
            assert unknown.exists()
    assert [path for path in gone if path.exists() and path not in (sibling.sockets.service, sibling.sockets.registrar)] == []
    assert [path for path in kept if not path.exists()] == []


def test_names_of_the_third_form_are_removed_by_the_dead_one_s_lock(short: Path) -> None:
    plugin = short / "plugin"
    registry = short / ("r" * (107 - len(str(short)) - 1 - len(f"/{DRIVER}-{digest(OLD, 8)}-reg.sock") + 1))
    for path in (plugin, registry):
        path.mkdir()
    names = SocketNames.of(DRIVER, OLD, plugin=plugin, registry=registry)
    assert names.registrar.name.startswith("dra-")
    dead_socket(names.registrar)
    (plugin / f"instance-{OLD}.lock").touch()
    with alive((plugin, registry), NEW):
        assert not names.registrar.exists()


def test_a_socket_that_somebody_serves_is_never_removed(places: tuple[Path, Path]) -> None:
    with living_socket(places[1] / f"{DRIVER}-{OLD}-reg.sock") as path, alive(places, NEW):
        assert path.exists()


def test_a_directory_that_was_replaced_is_noticed(places: tuple[Path, Path]) -> None:
    with alive(places, OLD) as one:
        assert one.problem() == ""
        places[0].rename(places[0].with_name("moved"))
        places[0].mkdir()
        assert "the plugin directory was removed or replaced" in one.problem()
        with alive(places, OLD):
            one.leave()
            assert (places[0] / f"instance-{OLD}.lock").exists(), "the successor's lock is not ours to remove"
