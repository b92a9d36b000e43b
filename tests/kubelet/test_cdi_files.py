"""CDI spec files of prepared claims."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dra_driver.errors import ClaimError, HostError
from dra_driver.k8s.objects.resource import DeviceRequestAllocationResult
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.journal import ClaimKey

CLAIM = ClaimKey("ns", "training", "8f1c-uid")
DRIVER, KIND = "gpu.example.com", "k8s.gpu.example.com/claim"


def plan(path: str = "/dev/gpu0", share_id: str | None = None) -> Plan:
    result = DeviceRequestAllocationResult(request="gpu", driver=DRIVER, pool="node-a", device="gpu-0", share_id=share_id)
    edits = ContainerEdits(device_nodes=(DeviceNode(path, type="c", major=195, minor=0),))
    return Plan((PlannedDevice(result, "GPU-0", edits),), common=ContainerEdits(env=("VISIBLE=void",)))


@pytest.fixture
def files(tmp_path: Path) -> CdiFiles:
    return CdiFiles(tmp_path / "cdi", driver=DRIVER, kind=KIND)


def test_the_file_is_a_cdi_spec_that_names_its_claim(files: CdiFiles) -> None:
    assert files.ensure(CLAIM, plan())
    path = files.path(CLAIM)
    assert path.name == "k8s.gpu.example.com-claim_8f1c-uid.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert json.loads(path.read_text()) == {
        "cdiVersion": "0.6.0",
        "kind": KIND,
        "annotations": {
            "resource.kubernetes.io/driver": DRIVER,
            "resource.kubernetes.io/claim": "ns/training",
            "resource.kubernetes.io/claim-uid": "8f1c-uid",
        },
        "devices": [
            {"name": "8f1c-uid-gpu-0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "type": "c", "major": 195, "minor": 0}]}},
        ],
        "containerEdits": {"env": ["VISIBLE=void"]},
    }
    assert files.device_id(CLAIM, plan().devices[0]) == "k8s.gpu.example.com/claim=8f1c-uid-gpu-0"


def test_shares_of_one_device_have_different_names(files: CdiFiles) -> None:
    assert files.device_id(CLAIM, plan(share_id="s1").devices[0]).endswith("-gpu-0-s1")


def test_a_correct_file_is_left_alone_and_a_wrong_one_is_written_again(files: CdiFiles) -> None:
    files.ensure(CLAIM, plan())
    before = files.path(CLAIM).stat().st_ino
    assert not files.ensure(CLAIM, plan())
    assert files.path(CLAIM).stat().st_ino == before
    files.path(CLAIM).write_text("{")
    assert files.ensure(CLAIM, plan())
    assert files.ensure(CLAIM, plan("/dev/gpu7"))
    files.path(CLAIM).unlink()
    assert files.ensure(CLAIM, plan())


def test_only_the_finished_file_is_ever_visible(files: CdiFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.ensure(CLAIM, plan())
    before = files.path(CLAIM).read_bytes()

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(HostError, match=r"claim ns/training \(UID 8f1c-uid\): CDI spec .* No space left on device"):
        files.ensure(CLAIM, plan("/dev/gpu7"))
    assert files.path(CLAIM).read_bytes() == before
    assert [path.name for path in files.path(CLAIM).parent.iterdir()] == [files.path(CLAIM).name], "nothing is left over"


def test_removing_is_repeatable(files: CdiFiles) -> None:
    files.ensure(CLAIM, plan())
    files.remove(CLAIM)
    files.remove(CLAIM)
    assert not files.path(CLAIM).exists()


def test_our_files_are_recognised_by_their_annotations_and_all_others_are_passed_over(files: CdiFiles, tmp_path: Path) -> None:
    files.ensure(CLAIM, plan())
    CdiFiles(tmp_path / "cdi", driver="other.example.com", kind=KIND).ensure(ClaimKey("ns", "b", "other-uid"), plan())
    (tmp_path / "cdi" / "k8s.gpu.example.com-claim_garbage.json").write_text("{")
    (tmp_path / "cdi" / "k8s.gpu.example.com-claim_plain.json").write_text(
        '{"cdiVersion": "0.6.0", "kind": "k8s.gpu.example.com/claim", "devices": []}'
    )
    (tmp_path / "cdi" / "nvidia.yaml").write_text("kind: nvidia.com/gpu")
    assert list(files.claims()) == [CLAIM]


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b"])
def test_a_uid_that_is_no_file_name_is_refused(files: CdiFiles, uid: str) -> None:
    with pytest.raises(ClaimError, match="UID cannot be part of a file name"):
        files.remove(ClaimKey("ns", "c", uid))


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="it must be writable for the driver"):
        CdiFiles(tmp_path / "file" / "cdi", driver=DRIVER, kind=KIND).check_writable()
