"""CDI specs of prepared claims follow the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.k8s.client import Client
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import ClaimKeeper
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.host_watch import HostWatch
from dra_driver.kubelet.journal import ClaimKey, Journal
from tests.kubelet.toy import ToyDriver, allocated, result


class StampedDriver(ToyDriver):
    """A toy that says when to plan anew."""

    stamp: object = "first"

    def host_stamp(self) -> object:
        return self.stamp


class World:
    """A prepared claim, and a watch that counts its repairs."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.driver = StampedDriver()
        self.cdi = CdiFiles(directory / "cdi", driver=self.driver.name, kind=self.driver.cdi_kind)
        self.database = Database(directory / "state.db")
        self.keeper = ClaimKeeper(self.driver, client, Journal(self.database), self.cdi)
        self.repairs = 0
        self.watch = HostWatch(self.driver, self.cdi, self.repair)
        self.claim: ClaimKey = allocated(client, "c", result("toy-0"))
        self.keeper.prepare([self.claim])

    def repair(self) -> None:
        self.repairs += 1
        self.keeper.repair()

    def spec(self) -> str:
        return self.cdi.path(self.claim).read_text()


@pytest.fixture
def world(client: Client, tmp_path: Path) -> Iterator[World]:
    one = World(client, tmp_path)
    yield one
    one.database.close()


def test_an_emptied_cdi_directory_is_filled_again(world: World) -> None:
    before = world.spec()
    world.watch.look()
    assert world.repairs == 0
    world.cdi.path(world.claim).unlink()
    world.watch.look()
    assert world.spec() == before
    world.watch.look()
    assert world.repairs == 1


def test_an_unprepared_claim_is_not_lost(world: World) -> None:
    world.keeper.unprepare([world.claim])
    world.watch.look()
    assert world.repairs == 0


def test_specs_show_the_new_driver_once_its_installation_has_come_to_rest(world: World) -> None:
    world.driver.node_path = "/new/dev/{}"
    for unsettled in (object(), object()):
        world.driver.stamp = unsettled
        world.watch.look()
    world.driver.stamp = "second"
    world.watch.look()
    assert world.repairs == 0
    assert "/new/dev" not in world.spec()
    world.watch.look()
    assert "/new/dev/toy-0" in world.spec()
    world.watch.look()
    assert world.repairs == 1


def test_a_change_back_and_forth_between_two_looks_is_none(world: World) -> None:
    for stamp in ("second", "first", "first"):
        world.driver.stamp = stamp
        world.watch.look()
    assert world.repairs == 0


def test_a_repair_that_fails_is_tried_again_by_the_next_look(world: World) -> None:
    def fail() -> None:
        raise OSError

    world.driver.stamp = "second"
    watch = HostWatch(StampedDriver(), world.cdi, fail)
    watch._driver = world.driver
    watch.look()
    for _ in range(2):
        with pytest.raises(OSError):
            watch.look()


def test_the_loop_ends_with_its_event(world: World) -> None:
    stop = threading.Event()
    stop.set()
    world.watch.run(stop)
