"""A GPU that broke before the program started is known by what was written down."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from dra_driver.gpu.inventory import discover
from dra_driver.gpu.last_known import LastKnown
from tests.gpu.conftest import Node

LOST = pynvml.NVMLError_GpuIsLost()


@pytest.fixture
def known(tmp_path: Path, h100: Node) -> LastKnown:
    one = LastKnown(tmp_path / "gpus.json", "boot-1")
    one.save(discover(*h100))
    return one


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_a_gpu_that_cannot_be_read_stays_what_it_was(known: LastKnown, h100: Node, fail: Callable[..., None], function: str) -> None:
    before = discover(*h100)
    fail(h100[0], function, LOST, 1)
    broken = discover(*h100)
    assert len(broken.gpus) == len(broken.problems) == 1
    assert known.complete(broken, h100[1]) == before


def test_it_is_still_known_after_another_start(known: LastKnown, h100: Node, fail: Callable[..., None]) -> None:
    before = discover(*h100)
    fail(h100[0], "nvmlDeviceGetHandleByIndex", LOST, 1)
    for _ in range(2):
        completed = known.complete(discover(*h100), h100[1])
        assert completed == before
        known.save(completed)


def test_all_that_can_be_read_is_taken_as_it_is_now(known: LastKnown, h100: Node, fail: Callable[..., None]) -> None:
    fail(h100[0], "nvmlDeviceGetName", pynvml.NVMLError_NotSupported())
    now = discover(*h100)
    assert known.complete(now, h100[1]) == now


def test_what_was_written_in_another_boot_does_not_count(tmp_path: Path, known: LastKnown, h100: Node, fail: Callable[..., None]) -> None:
    fail(h100[0], "nvmlDeviceGetHandleByIndex", LOST, 1)
    broken = discover(*h100)
    assert LastKnown(tmp_path / "gpus.json", "boot-2").complete(broken, h100[1]) == broken


def test_a_gpu_that_the_driver_does_not_list_any_more_is_gone(known: LastKnown, h100: Node, fail: Callable[..., None]) -> None:
    fail(h100[0], "nvmlDeviceGetHandleByIndex", LOST, 1)
    broken = discover(*h100)
    shutil.rmtree(h100[1].proc / "driver/nvidia/gpus/0000:43:00.0")
    assert known.complete(broken, h100[1]) == broken


def test_a_gpu_that_went_into_mig_mode_is_not_broken(
    known: LastKnown, h100: Node, monkeypatch: pytest.MonkeyPatch, fail: Callable[..., None]
) -> None:
    modes = iter([[1, 1], [0, 0]])
    monkeypatch.setattr(h100[0], "nvmlDeviceGetMigMode", lambda _device: next(modes))
    inventory = discover(*h100)
    assert [problem.broken for problem in inventory.problems] == [False]
    assert known.complete(inventory, h100[1]) == inventory


@pytest.mark.parametrize("content", ["", "{", '{"boot_id": "boot-1", "gpus": [{}]}'])
def test_a_damaged_file_is_told_and_nothing_else(
    tmp_path: Path, known: LastKnown, h100: Node, fail: Callable[..., None], caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (tmp_path / "gpus.json").write_text(content)
    fail(h100[0], "nvmlDeviceGetHandleByIndex", LOST, 1)
    broken = discover(*h100)
    assert known.complete(broken, h100[1]) == broken
    assert caplog.messages == ["GPUs that were written down cannot be read"]


def test_a_file_that_cannot_be_written_is_told_and_nothing_else(h100: Node, caplog: pytest.LogCaptureFixture) -> None:
    LastKnown(Path("/proc/nowhere/gpus.json"), "boot-1").save(discover(*h100))
    assert caplog.messages == ["GPUs cannot be written down, one that breaks is left out after a restart"]


def test_without_a_boot_id_nothing_is_taken_for_known(tmp_path: Path, h100: Node, fail: Callable[..., None]) -> None:
    known = LastKnown(tmp_path / "gpus.json", "")
    known.save(discover(*h100))
    fail(h100[0], "nvmlDeviceGetHandleByIndex", LOST, 1)
    broken = discover(*h100)
    assert known.complete(broken, h100[1]) == broken
