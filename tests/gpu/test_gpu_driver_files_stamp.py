"""The stamp of a driver root, by which a prepare knows that it need not look through all its files again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dra_driver.errors import HostError
from dra_driver.gpu import driver_files
from dra_driver.gpu.container_edits import common_edits
from dra_driver.gpu.simulator import simulate
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths

VERSION = "575.57.08"


@pytest.fixture
def paths(tmp_path: Path) -> SimulatedHostPaths:
    _, paths = simulate("h100-sxm-80gb", tmp_path / "root", seed="node")
    settle(paths)
    return paths


def settle(paths: SimulatedHostPaths) -> None:
    """As if the driver had been installed an hour ago."""
    past = time.time() - 3600
    for directory, _, _ in os.walk(paths.driver_root):
        os.utime(directory, (past, past))


def libraries(paths: SimulatedHostPaths) -> Path:
    return paths.driver_root / "usr/lib/x86_64-linux-gnu"


def test_an_untouched_driver_root_keeps_its_stamp(paths: SimulatedHostPaths) -> None:
    assert driver_files.stamp(paths.driver_root) == driver_files.stamp(paths.driver_root)


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "new directory"])
def test_whatever_comes_or_goes_changes_the_stamp(paths: SimulatedHostPaths, change: str) -> None:
    before = driver_files.stamp(paths.driver_root)
    library = libraries(paths) / f"libnvidia-ml.so.{VERSION}"
    match change:
        case "added":
            (libraries(paths) / "libnew.so").touch()
        case "removed":
            library.unlink()
        case "renamed":
            library.rename(library.with_name("other"))
        case _:
            (paths.driver_root / "usr/local/bin").mkdir(parents=True)
    assert driver_files.stamp(paths.driver_root) != before


def test_a_directory_that_changed_a_moment_ago_has_no_lasting_stamp(paths: SimulatedHostPaths) -> None:
    """Another change within the same tick of the kernel's clock would not show."""
    os.utime(libraries(paths))
    assert driver_files.stamp(paths.driver_root) != driver_files.stamp(paths.driver_root)


def test_edits_of_an_untouched_driver_root_are_not_looked_up_again(paths: SimulatedHostPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    first = common_edits(paths, VERSION)
    with monkeypatch.context() as patch:
        patch.setattr(driver_files, "libraries", lambda root, version: pytest.fail("looked up again"))
        assert common_edits(paths, VERSION) == first


def test_a_node_that_came_again_with_other_numbers_is_seen_by_the_next_prepare(paths: SimulatedHostPaths) -> None:
    before = common_edits(paths, VERSION)
    node = paths.dev / "nvidia-uvm"
    node.unlink()
    node.write_text("c 511 0")
    (found,) = [one for one in common_edits(paths, VERSION).device_nodes if one not in before.device_nodes]
    assert (found.path, found.major) == ("/dev/nvidia-uvm", 511)


def test_a_replaced_driver_is_seen_by_the_next_prepare(paths: SimulatedHostPaths) -> None:
    before = common_edits(paths, VERSION)
    added = libraries(paths) / f"libnvidia-added.so.{VERSION}"
    added.touch()
    assert {mount.host_path for mount in common_edits(paths, VERSION).mounts} - {mount.host_path for mount in before.mounts} == {str(added)}
    (libraries(paths) / "libcuda.so.1").unlink()
    with pytest.raises(HostError, match=r"libcuda\.so\.1"):
        common_edits(paths, VERSION)
