"""CDI names become a container's devices, mounts and environment, as containerd does it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import HostError
from dra_driver.sandbox.container import start_container

KIND = "vendor.example/gpu"


def write(directory: Path, name: str, *devices: dict[str, Any], **spec: Any) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": KIND, "devices": list(devices), **spec}))
    return path


def device(name: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits or {"env": [f"DEVICE_{name}=yes"]}}


def test_edits_of_the_spec_come_once_and_before_those_of_its_devices(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0", env=["WHO=device", "ZERO=0"]), device("1", env=["ONE=1"]), containerEdits={"env": ["WHO=spec", "ALL=1"]})
    container = start_container([f"{KIND}=0", f"{KIND}=1", f"{KIND}=0"], directories=[tmp_path], environment=["PATH=/bin", "ALL=image"])
    assert container.environment == ("PATH=/bin", "ALL=1", "WHO=device", "ZERO=0", "ONE=1")


def test_edits_of_a_spec_without_a_requested_device_do_not_apply(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0"))
    write(tmp_path, "b.json", device("1"), containerEdits={"env": ["OTHER=1"]})
    assert start_container([f"{KIND}=0"], directories=[tmp_path]).environment == ("DEVICE_0=yes",)


def test_later_device_node_and_mount_at_the_same_place_replace_earlier_ones(tmp_path: Path) -> None:
    node = {"path": "/dev/gpu", "type": "c", "major": 195, "minor": 0}
    mount = {"hostPath": "/a", "containerPath": "/usr/lib/deep/a"}
    edits = {
        "deviceNodes": [node | {"minor": 1, "hostPath": "/host/dev/gpu"}],
        "mounts": [mount | {"hostPath": "/b"}, {"hostPath": "/c", "containerPath": "/usr"}],
    }
    write(tmp_path, "a.json", device("0", deviceNodes=[node], mounts=[mount]), device("1", **edits))
    container = start_container([f"{KIND}=0", f"{KIND}=1"], directories=[tmp_path])
    assert [(n.path, n.host_path, n.minor, n.permissions) for n in container.device_nodes] == [("/dev/gpu", "/host/dev/gpu", 1, "rwm")]
    assert [(m.host_path, m.container_path) for m in container.mounts] == [("/c", "/usr"), ("/b", "/usr/lib/deep/a")]


def test_numbers_that_the_spec_leaves_out_are_those_of_the_host(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0", deviceNodes=[{"path": "/dev/inside", "hostPath": "/dev/null", "permissions": "r"}]))
    (node,) = start_container([f"{KIND}=0"], directories=[tmp_path]).device_nodes
    null = Path("/dev/null").stat().st_rdev
    assert (node.path, node.type, node.major, node.minor, node.permissions) == ("/dev/inside", "c", os.major(null), os.minor(null), "r")


def test_a_complete_device_node_need_not_exist_on_the_host(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0", deviceNodes=[{"path": "/dev/none0", "type": "c", "major": 195, "minor": 0, "permissions": "none"}]))
    (node,) = start_container([f"{KIND}=0"], directories=[tmp_path]).device_nodes
    assert (node.host_path, node.permissions) == ("/dev/none0", "")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"path": "/dev/none0"}, "/dev/none0"),
        ({"path": "/dev/none0", "type": "c"}, "/dev/none0"),
        ({"path": "/dev/inside", "hostPath": "/dev/null", "type": "b"}, r'CDI device \("/dev/inside", "/dev/null"\), host type mismatch \(b, c\)'),
        ({"path": "/dev/inside", "hostPath": "/etc/hostname"}, "need a character or block device"),
    ],
)
def test_a_device_node_that_is_none_stops_the_container(tmp_path: Path, node: dict[str, Any], text: str) -> None:
    write(tmp_path, "a.json", device("0", deviceNodes=[node]))
    with pytest.raises(HostError, match=text):
        start_container([f"{KIND}=0"], directories=[tmp_path])


def test_unknown_names_are_all_told(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0"))
    with pytest.raises(HostError, match=r"unresolvable CDI devices vendor.example/gpu=1, other/gpu=0$"):
        start_container([f"{KIND}=1", f"{KIND}=0", "other/gpu=0"], directories=[tmp_path])


def test_later_directory_hides_the_earlier_and_yaml_is_read(tmp_path: Path) -> None:
    write(tmp_path / "etc", "a.json", device("0"))
    (tmp_path / "run").mkdir()
    yaml = f"cdiVersion: 1.1.0\nkind: {KIND}\ndevices: [{{name: '0', containerEdits: {{env: [FROM=run]}}}}]\n"
    (tmp_path / "run" / "a.yaml").write_text(yaml)
    (tmp_path / "run" / "ignored.txt").write_text("no spec")
    directories = [tmp_path / "etc", tmp_path / "missing", tmp_path / "run"]
    assert start_container([f"{KIND}=0"], directories=directories).environment == ("FROM=run",)


def test_same_name_twice_in_a_directory_is_a_conflict(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("0"))
    write(tmp_path, "b.json", device("0"), device("1"))
    assert start_container([f"{KIND}=1"], directories=[tmp_path]).environment == ("DEVICE_1=yes",)
    with pytest.raises(HostError, match=r'unresolvable CDI devices vendor.example/gpu=0; conflicting device "vendor.example/gpu=0" .*b.json.*a.json'):
        start_container([f"{KIND}=0"], directories=[tmp_path])


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"cdiVersion": "0.2.0"}, "cdiVersion: found '0.2.0'"),
        ({"cdiVersion": "0.5.0", "annotations": {"a": "b"}}, "found 0.5.0, the fields that are used need 0.6.0"),
        ({"kind": "gpu"}, "kind: found 'gpu', must be <vendor>/<class>"),
        ({"devices": []}, "devices: empty"),
        ({"devices": [device("0"), device("0")]}, "device '0': twice in the spec"),
        ({"devices": [device("0"), device("-x")]}, "device '-x': the name"),
        ({"devices": [device("0"), {"name": "1", "containerEdits": {}}]}, "device '1': empty containerEdits"),
        ({"devices": [device("0", env=["=x"])]}, "device '0': env: found '=x', must be NAME=value"),
        ({"devices": [device("0", deviceNodes=[{"path": ""}])]}, "device node: empty path"),
        ({"devices": [device("0", deviceNodes=[{"path": "/dev/x", "type": "x"}])]}, "type: found 'x'"),
        ({"devices": [device("0", deviceNodes=[{"path": "/dev/x", "permissions": "rx"}])]}, "permissions: found 'rx'"),
        ({"devices": [device("0", mounts=[{"hostPath": "", "containerPath": "/x"}])]}, "mount: empty hostPath or containerPath"),
        ({"devices": [device("0", hooks=[{"hookName": "later", "path": "/x"}])]}, "hook: found 'later'"),
        ({"containerEdits": {"env": ["NOTHING"]}}, "containerEdits: env: found 'NOTHING'"),
        ({"devices": [{"containerEdits": {}}]}, "missing required field `name`"),
        ({"devices": [device("0", futureEdits=[])]}, "contains unknown field `futureEdits`"),
    ],
)
def test_a_faulty_spec_is_not_used_and_the_fault_is_told(tmp_path: Path, spec: dict[str, Any], text: str) -> None:
    path = write(tmp_path, "a.json", device("0"))
    assert start_container([f"{KIND}=0"], directories=[tmp_path])
    path.write_text(json.dumps(json.loads(path.read_text()) | spec))
    with pytest.raises(HostError) as caught:
        start_container([f"{KIND}=0"], directories=[tmp_path])
    assert str(caught.value).startswith(f"CDI device injection failed: unresolvable CDI devices {KIND}=0; CDI spec {path}: ")
    assert text in str(caught.value)
