"""Registrars of other processes in the registry directory."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as rpc
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import SocketServer
from dra_driver.kubelet.strangers import Strangers

DRIVER = "toy.example.com"


@contextlib.contextmanager
def registrar(path: Path, driver: str) -> Iterator[Registrar]:
    one = Registrar(driver, Path("/elsewhere/dra.sock"), ["v1.DRAPlugin"])
    asked: list[object] = []
    one.busy = False  # type: ignore[attr-defined]
    answer = one.GetInfo

    def counted(request: object, context: grpc.ServicerContext) -> object:
        asked.append(request)
        if one.busy:  # type: ignore[attr-defined]
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return answer(request, context)  # type: ignore[arg-type]

    one.GetInfo = counted  # type: ignore[method-assign, assignment]
    one.asked = asked  # type: ignore[attr-defined]
    path.parent.mkdir(exist_ok=True)
    server = SocketServer(path, workers=1)
    server.add(partial(rpc.add_RegistrationServicer_to_server, one))
    server.start()
    try:
        yield one
    finally:
        server.stop(0)


@pytest.mark.parametrize("name", [f"{DRIVER}-reg.sock", "anything.sock", "below/deeper.sock"])
def test_a_living_registrar_of_our_name_is_found_wherever_the_kubelet_finds_it(short: Path, name: str) -> None:
    strangers = Strangers(DRIVER, short, set)
    assert strangers.look() == ""
    with registrar(short / name, DRIVER):
        for _ in range(2):
            assert f"another driver of the name {DRIVER} is registered at {short / name} (it serves /elsewhere/dra.sock)" in strangers.look()
    assert strangers.look() == ""


def test_ours_and_those_that_the_kubelet_ignores_are_none(short: Path) -> None:
    ours = {short / "a-reg.sock", short / "b-reg.sock"}
    with contextlib.ExitStack() as stack:
        for path in (*ours, short / ".hidden"):
            stack.enter_context(registrar(path, DRIVER))
        assert Strangers(DRIVER, short, lambda: ours).look() == ""


def test_another_driver_is_asked_once(short: Path) -> None:
    strangers = Strangers(DRIVER, short, set)
    path = short / "nic-reg.sock"
    with registrar(path, "nic.example.com") as other:
        for _ in range(3):
            assert strangers.look() == ""
        assert len(other.asked) == 1  # type: ignore[attr-defined]
    with registrar(path, DRIVER):
        assert strangers.look(), "another process at the same path is another one"


def test_what_does_not_answer_hides_nobody(short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as dead:
        mute.bind(str(short / "a-mute.sock"))
        mute.listen()
        dead.bind(str(short / "b-dead.sock"))
        (short / "c-file").touch()
        with registrar(short / "z-reg.sock", DRIVER):
            assert "z-reg.sock" in Strangers(DRIVER, short, set).look()


def test_a_stranger_that_is_busy_for_a_moment_is_still_one(short: Path) -> None:
    strangers = Strangers(DRIVER, short, set)
    with registrar(short / "z-reg.sock", DRIVER) as other:
        found = strangers.look()
        other.busy = True  # type: ignore[attr-defined]
        assert strangers.look() == found != ""
    assert strangers.look() == "", "it has gone"
