"""The simulated driver root: device nodes or stand-ins, /proc and /sys as the driver fills them, rebuilt only where it must."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from dra_driver.daemon.paths import DeviceNumbers, HostPaths
from dra_driver.errors import HostError
from dra_driver.gpu.simulator import directory_tree, simulate
from dra_driver.gpu.simulator.driver_root import SimulatedHostPaths, build
from dra_driver.gpu.simulator.profile import Profile

H100 = Profile.load("h100-sxm-80gb", gpus=2)
NODES = {
    "nvidia0": (195, 0),
    "nvidia1": (195, 1),
    "nvidiactl": (195, 255),
    "nvidia-modeset": (195, 254),
    "nvidia-uvm": (508, 0),
    "nvidia-uvm-tools": (508, 1),
    "nvidia-caps/nvidia-cap1": (234, 1),
    "nvidia-caps/nvidia-cap2": (234, 2),
}


def built(root: Path, profile: Profile = H100, *, real_nodes: bool = True, seed: str = "node-a") -> SimulatedHostPaths:
    return build(root, profile, profile.gpus(seed), real_nodes=real_nodes)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path.relative_to(root)): (found.st_ino, found.st_mtime_ns, found.st_mode)
        for path in root.rglob("*")
        for found in [path.lstat()]
        if not path.is_dir()
    }


def test_real_nodes_have_the_numbers_of_the_driver(tmp_path: Path) -> None:
    if not directory_tree._may_make_nodes(tmp_path):
        pytest.skip("this process may not make device nodes")
    paths = built(tmp_path)
    for name, (major, minor) in NODES.items():
        found = (paths.dev / name).stat()
        assert stat.S_ISCHR(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o666
        assert (os.major(found.st_rdev), os.minor(found.st_rdev)) == (major, minor)
        assert paths.device_numbers(paths.dev / name) == DeviceNumbers("c", major, minor)


def test_stand_ins_tell_the_same_numbers(tmp_path: Path) -> None:
    paths: HostPaths = built(tmp_path, real_nodes=False)
    assert (paths.dev / "nvidia0").is_file()
    assert {name: paths.device_numbers(paths.dev / name) for name in NODES} == {name: DeviceNumbers("c", *numbers) for name, numbers in NODES.items()}


def test_a_process_that_may_not_make_nodes_gets_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    assert (built(tmp_path).dev / "nvidiactl").is_file()


def test_stand_ins_can_be_asked_for(tmp_path: Path) -> None:
    _, paths = simulate("h100-sxm-80gb", tmp_path / "driver", gpus=1, seed="node-a", real_nodes=False)
    assert (paths.dev / "nvidia0").is_file()


def test_a_build_that_was_interrupted_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path, *_: object) -> None:
        path.touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "mknod", interrupt)
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path)
    assert (built(tmp_path, real_nodes=False).dev / "nvidia0").is_file()
    assert not (tmp_path / ".probe").exists()


def test_the_majors_are_those_of_proc_devices(tmp_path: Path) -> None:
    paths = built(tmp_path, real_nodes=False)
    rows = (paths.proc / "devices").read_text().split("Block devices:")[0].splitlines()
    majors = {name: int(major) for major, name in (row.split() for row in rows if row.strip()[:1].isdigit())}
    assert (majors["nvidiactl"], majors["nvidia-uvm"], majors["nvidia-caps"]) == (195, 508, 234)


@pytest.mark.parametrize("name", ["nvidia9", "no/such"])
def test_a_missing_node_is_named(tmp_path: Path, name: str) -> None:
    paths = built(tmp_path, real_nodes=False)
    with pytest.raises(HostError, match=f"device node {paths.dev / name}: No such file"):
        paths.device_numbers(paths.dev / name)


def test_a_file_that_is_no_stand_in_is_no_device_node(tmp_path: Path) -> None:
    paths = built(tmp_path, real_nodes=False)
    (paths.dev / "nvidia0").write_text("something else\n")
    with pytest.raises(HostError, match="need a character or block device"):
        paths.device_numbers(paths.dev / "nvidia0")


def test_proc_tells_each_gpu_s_uuid_and_minor(tmp_path: Path) -> None:
    profile = Profile.load("a100-sxm-40gb")
    paths = built(tmp_path, profile, real_nodes=False)
    information = (paths.proc / "driver/nvidia/gpus/0000:07:00.0/information").read_text()
    assert f"GPU UUID: \t {profile.gpus('node-a')[0].uuid}\n" in information
    assert "Device Minor: \t 2\n" in information
    assert "550.163.01" in (paths.proc / "driver/nvidia/version").read_text()


def test_sysfs_leads_from_the_bus_to_the_place_in_the_tree(tmp_path: Path) -> None:
    link = built(tmp_path, real_nodes=False).sys / "bus/pci/devices/0000:1b:00.0"
    assert str(link.resolve().relative_to((tmp_path / "sys").resolve())) == "devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0"
    assert {name: (link / name).read_text().strip() for name in ("vendor", "device", "class", "numa_node")} == {
        "vendor": "0x10de",
        "device": "0x2330",
        "class": "0x030200",
        "numa_node": "0",
    }


@pytest.mark.parametrize("real_nodes", [True, False])
def test_building_again_changes_nothing(tmp_path: Path, real_nodes: bool) -> None:
    built(tmp_path, real_nodes=real_nodes)
    before = snapshot(tmp_path)
    built(tmp_path, real_nodes=real_nodes)
    assert snapshot(tmp_path) == before


def test_building_again_repairs_what_is_missing_and_only_that(tmp_path: Path) -> None:
    paths = built(tmp_path, real_nodes=False)
    before = snapshot(tmp_path)
    (paths.dev / "nvidia1").unlink()
    built(tmp_path, real_nodes=False)
    after = snapshot(tmp_path)
    assert paths.device_numbers(paths.dev / "nvidia1").minor == 1
    assert {path for path in after if before[path] != after[path]} == {"dev/nvidia1"}


def test_another_profile_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    built(tmp_path / "one", real_nodes=False)
    built(tmp_path / "one", Profile.load("a100-sxm-40gb"), real_nodes=False)
    built(tmp_path / "two", Profile.load("a100-sxm-40gb"), real_nodes=False)
    one, two = snapshot(tmp_path / "one"), snapshot(tmp_path / "two")
    assert one.keys() == two.keys()
    directories = [sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()) for root in (tmp_path / "one", tmp_path / "two")]
    assert directories[0] == directories[1]


def test_a_directory_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(HostError, match="holds other files; choose an empty or a new one"):
        built(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=f"simulated driver root {tmp_path}/file/root: .*Not a directory; choose a directory that can be written"):
        simulate("h100-sxm-80gb", tmp_path / "file/root", seed="node-a")


def test_nvidia_smi_lists_the_gpus_whose_nodes_are_visible(tmp_path: Path) -> None:
    paths = built(tmp_path / "driver", real_nodes=False)
    script = (paths.driver_root / "usr/bin/nvidia-smi").read_text()
    dev = tmp_path / "dev"
    dev.mkdir()

    def run() -> str:
        return subprocess.run(["sh", "-c", script.replace("/dev/nvidia", f"{dev}/nvidia")], check=True, capture_output=True, text=True).stdout

    assert run() == "No devices were found\n"
    (dev / "nvidia1").touch()
    assert run() == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {H100.gpus('node-a')[1].uuid})\n"
