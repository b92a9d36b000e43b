"""Which processes have a device open, over a /proc tree of the test and over the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.errors import HostError
from dra_driver.kubelet.cdi import DeviceNode
from dra_driver.kubelet.device_users import FIRST_PID_NAMESPACE, DeviceUsers, host_processes

NULL, ZERO = Path("/dev/null"), Path("/dev/zero")  # character devices that every machine has


def node(path: Path, name: str = "/dev/toy0") -> DeviceNode:
    number = path.stat().st_rdev
    return DeviceNode(name, type="c", major=os.major(number), minor=os.minor(number))


def process(proc: Path, pid: int, *opened: Path, maps: str = "") -> Path:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    for number, target in enumerate(opened):
        (directory / "fd" / str(number)).symlink_to(target)
    (directory / "maps").write_text(maps)
    return directory


def test_processes_that_have_the_device_open_are_found_by_its_number_and_not_by_its_name(tmp_path: Path) -> None:
    process(tmp_path, 1)
    process(tmp_path, 7, tmp_path / "1", ZERO)
    process(tmp_path, 20, NULL)
    process(tmp_path, 300, ZERO, NULL, ZERO)
    (tmp_path / "sys").mkdir()
    assert DeviceUsers(tmp_path).find([node(NULL)]) == [20, 300]
    assert DeviceUsers(tmp_path).find([node(ZERO), node(NULL)]) == [7, 20, 300]


def test_a_process_that_has_closed_the_device_and_has_it_mapped_uses_it(tmp_path: Path) -> None:
    process(tmp_path, 1, maps="7f00-7f01 rw-s 00000000 00:05 42    /dev/toy0\n7f02-7f03 r--p 00000000 08:01 43    /usr/lib/libc.so\n")
    process(tmp_path, 2, maps="7f00-7f01 rw-s 00000000 00:05 42    /dev/toy01\n")
    assert DeviceUsers(tmp_path).find([node(NULL)]) == [1]


def test_processes_and_files_that_go_meanwhile_are_no_users(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    process(tmp_path, 2, tmp_path / "gone")
    assert DeviceUsers(tmp_path).find([node(NULL)]) == []


def test_a_process_whose_device_node_was_removed_uses_it_as_long_as_it_has_it_mapped(tmp_path: Path) -> None:
    process(tmp_path, 1, maps="7f00-7f01 rw-s 00000000 00:05 42    /dev/toy0 (deleted)\n")
    assert DeviceUsers(tmp_path).find([node(NULL)]) == [1]


def test_a_device_without_numbers_has_those_of_its_node_on_the_host_as_in_containers(tmp_path: Path) -> None:
    process(tmp_path, 7, NULL)
    assert DeviceUsers(tmp_path).find([DeviceNode("/dev/toy0", host_path=str(NULL))]) == [7]
    assert DeviceUsers(tmp_path).find([DeviceNode(str(ZERO))]) == []


@pytest.mark.parametrize("path", ["/dev/toy0", "/etc"])
def test_a_device_without_numbers_and_node_cannot_be_looked_for(tmp_path: Path, path: str) -> None:
    process(tmp_path, 7)
    with pytest.raises(HostError, match="its number is needed to tell who has it open"):
        DeviceUsers(tmp_path).find([DeviceNode(path)])


def test_block_and_character_devices_of_the_same_number_are_not_the_same(tmp_path: Path) -> None:
    process(tmp_path, 7, NULL)
    number = NULL.stat().st_rdev
    assert DeviceUsers(tmp_path).find([DeviceNode("/dev/toy0", type="b", major=os.major(number), minor=os.minor(number))]) == []


def test_a_claim_without_device_nodes_is_used_by_nobody() -> None:
    assert DeviceUsers(None).find([]) == []


@pytest.mark.parametrize("proc", [None, Path("/nonexistent"), Path("/usr")])
def test_processes_that_cannot_be_seen_prove_nothing(proc: Path | None) -> None:
    with pytest.raises(HostError, match=r"cannot be seen|No such file|shows no process"):
        DeviceUsers(proc).find([node(NULL)])


def test_a_process_that_must_not_be_looked_at_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 1)

    def forbidden(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with pytest.raises(HostError, match="process 1 cannot be looked at: Permission denied; the driver needs to be root"):
        DeviceUsers(tmp_path).find([node(NULL)])


def test_a_real_process_is_found_in_the_real_proc(tmp_path: Path) -> None:
    code = "import sys; opened = open('/dev/full'); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        (tmp_path / str(other.pid)).symlink_to(f"/proc/{other.pid}")  # that of our child alone: we need not be allowed to look at all
        assert DeviceUsers(tmp_path).find([node(Path("/dev/full"))]) == [other.pid]
        assert DeviceUsers(tmp_path).find([node(NULL)]) == []
        other.communicate("")
    assert DeviceUsers(tmp_path).find([node(Path("/dev/full"))]) == []


def test_a_proc_is_that_of_the_host_only_in_the_first_namespace(tmp_path: Path) -> None:
    own = tmp_path / "self" / "ns"
    own.mkdir(parents=True)
    (own / "pid").symlink_to("pid:[4026532999]")
    assert host_processes(tmp_path) is None
    (own / "pid").unlink()
    (own / "pid").symlink_to(FIRST_PID_NAMESPACE)
    assert host_processes(tmp_path) == tmp_path
    assert host_processes(tmp_path / "missing") is None
