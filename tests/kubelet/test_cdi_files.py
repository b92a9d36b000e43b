"""CDI spec files of prepared claims."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import ClaimError, HostError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode, NetDevice
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.journal import ChangeRecord, ClaimKey, Entry, HeldDevice

CLAIM = ClaimKey("ns", "training", "8f1c-uid")
DRIVER, KIND = "gpu.example.com", "k8s.gpu.example.com/claim"


EDITS = ContainerEdits(device_nodes=(DeviceNode("/dev/gpu0", type="c", major=195, minor=0),))


def planned(request: str = "gpu", edits: ContainerEdits = EDITS, *, device: str = "gpu-0", **more: Any) -> PlannedDevice:
    return PlannedDevice(DeviceRequestAllocationResult(request=request, driver=DRIVER, pool="node-a", device=device, **more), "GPU-0", edits)


def plan(path: str = "/dev/gpu0", share_id: str | None = None) -> Plan:
    edits = ContainerEdits(device_nodes=(DeviceNode(path, type="c", major=195, minor=0),))
    return Plan((planned(edits=edits, share_id=share_id),), common=ContainerEdits(env=("VISIBLE=void",)))


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
            "resource.kubernetes.io/claim-held": '{"devices":[{"pool":"node-a","device":"gpu-0","uuid":"GPU-0","request":"gpu"}]}',
        },
        "devices": [
            {"name": "8f1c-uid-gpu-0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "type": "c", "major": 195, "minor": 0}]}},
        ],
        "containerEdits": {"env": ["VISIBLE=void"]},
    }
    assert files.device_ids(CLAIM, plan()) == (("k8s.gpu.example.com/claim=8f1c-uid-gpu-0",),)


def test_shares_of_one_device_have_different_names(files: CdiFiles) -> None:
    shares = Plan((planned(share_id="s1"), planned(share_id="s2")))
    assert files.device_ids(CLAIM, shares) == ((f"{KIND}=8f1c-uid-gpu-0-s1",), (f"{KIND}=8f1c-uid-gpu-0-s2",))
    files.ensure(CLAIM, shares)
    assert [one["name"] for one in json.loads(files.path(CLAIM).read_text())["devices"]] == ["8f1c-uid-gpu-0-s1", "8f1c-uid-gpu-0-s2"]


def test_a_device_of_two_requests_is_one_cdi_device_that_both_name(files: CdiFiles) -> None:
    both = Plan((planned("watch", admin_access=True), planned("measure", admin_access=True)))
    files.ensure(CLAIM, both)
    assert len(json.loads(files.path(CLAIM).read_text())["devices"]) == 1
    assert files.device_ids(CLAIM, both) == 2 * ((f"{KIND}=8f1c-uid-gpu-0",),)


def test_a_device_of_two_requests_that_configure_it_differently_is_refused(files: CdiFiles) -> None:
    both = Plan((planned("a"), planned("b", ContainerEdits(env=("MODE=b",)))))
    with pytest.raises(ClaimError, match="device gpu-0 is allocated to several requests, and request b has it configured differently"):
        files.ensure(CLAIM, both)


def test_a_device_that_adds_nothing_is_in_no_spec_and_has_no_id(files: CdiFiles) -> None:
    silent = Plan((planned(edits=ContainerEdits()), planned("other", device="gpu-1")))
    files.ensure(CLAIM, silent)
    assert [one["name"] for one in json.loads(files.path(CLAIM).read_text())["devices"]] == ["8f1c-uid-gpu-1"]
    assert files.device_ids(CLAIM, silent) == ((), (f"{KIND}=8f1c-uid-gpu-1",))
    files.remove(CLAIM)
    assert not files.ensure(CLAIM, Plan((planned(edits=ContainerEdits()),)))
    assert not files.path(CLAIM).exists(), "a spec without devices is refused by runtimes"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Plan((planned(edits=ContainerEdits(env=("MODE",))),)), "device '8f1c-uid-gpu-0': env: found 'MODE', must be NAME=value"),
        (Plan((planned(edits=ContainerEdits()),), common=ContainerEdits(env=("A=1",))), "device '8f1c-uid-gpu-0': empty containerEdits"),
        (Plan((planned(device="gpu/0"),)), "device '8f1c-uid-gpu/0': the name must be letters"),
    ],
)
def test_what_a_runtime_would_refuse_is_that_claims_error_and_not_written(files: CdiFiles, wrong: Plan, text: str) -> None:
    with pytest.raises(ClaimError, match=rf"claim ns/training \(UID 8f1c-uid\): container runtimes refuse its CDI spec: {text}"):
        files.ensure(CLAIM, wrong)
    assert not files.path(CLAIM).exists()


def test_the_version_is_no_newer_than_what_is_used(files: CdiFiles) -> None:
    for edits, version in (
        (EDITS, "0.6.0"),
        (ContainerEdits(additional_gids=(44,)), "0.7.0"),
        (ContainerEdits(net_devices=(NetDevice("a", "b"),)), "1.1.0"),
    ):
        files.ensure(CLAIM, Plan((planned(edits=edits),)))
        assert json.loads(files.path(CLAIM).read_text())["cdiVersion"] == version


def test_a_spec_that_vanishes_is_noticed_once_and_one_that_is_removed_is_not(files: CdiFiles, tmp_path: Path) -> None:
    other = ClaimKey("ns", "other", "other-uid")
    files.ensure(CLAIM, plan())
    files.ensure(other, plan())
    assert not files.lost()
    files.remove(other)
    assert not files.lost()
    files.path(CLAIM).unlink()
    assert files.lost()
    assert not files.lost()
    files.ensure(CLAIM, plan())
    shutil.rmtree(tmp_path / "cdi")
    assert files.lost()
    files.ensure(CLAIM, plan())
    assert not CdiFiles(tmp_path / "cdi", driver=DRIVER, kind=KIND).lost()


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

    def no_space(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", no_space)
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
    assert [entry.claim for entry in files.entries()] == [CLAIM]


def test_a_file_tells_what_its_claim_holds(files: CdiFiles) -> None:
    changes = (ChangeRecord("mode", "fast", "eco"),)
    files.ensure(CLAIM, plan(share_id="s1"), changes=changes, pod_claim="gpu")
    (entry,) = files.entries()
    result = plan(share_id="s1").devices[0].result
    held = (HeldDevice("node-a", "gpu-0", "GPU-0", "s1"),)
    assert entry == Entry(CLAIM, DeviceAllocationResult(results=[result]), held, changes, pod_claim="gpu")
    assert not files.ensure(CLAIM, plan(share_id="s1"), changes=changes, pod_claim="gpu")
    assert files.ensure(CLAIM, plan(share_id="s1"), pod_claim="gpu")
    assert files.ensure(CLAIM, plan(share_id="s1"))


@pytest.mark.parametrize("told", ["{", '{"devices": "all"}', ""])
def test_a_file_that_notes_what_is_held_in_another_form_still_names_its_claim(files: CdiFiles, told: str) -> None:
    files.ensure(CLAIM, plan())
    spec = json.loads(files.path(CLAIM).read_text())
    spec["annotations"]["resource.kubernetes.io/claim-held"] = told
    files.path(CLAIM).write_text(json.dumps(spec))
    assert list(files.entries()) == [Entry(CLAIM, DeviceAllocationResult(), ())]


@pytest.mark.parametrize("uid", ["", "a b", "..", "other"])
def test_a_file_whose_name_is_not_that_of_its_claim_is_passed_over(files: CdiFiles, uid: str) -> None:
    files.ensure(CLAIM, plan())
    path = files.path(CLAIM)
    content = path.read_text().replace(f'"{CLAIM.uid}"', f'"{uid}"')
    path.with_name(path.name.replace(CLAIM.uid, uid if uid != "other" else "copy")).write_text(content)
    assert [entry.claim for entry in files.entries()] == [CLAIM]


@pytest.mark.parametrize("share_id", [None, "s1"])
def test_a_device_name_tells_the_uid_of_its_claim(files: CdiFiles, share_id: str | None) -> None:
    ((name,),) = files.device_ids(CLAIM, plan(share_id=share_id))
    assert files.claim_uid(name, "gpu-0", share_id) == CLAIM.uid
    assert files.claim_uid(name, "gpu-1", share_id) == ""
    assert files.claim_uid(name.replace("k8s.", "other."), "gpu-0", share_id) == ""


@pytest.mark.parametrize("uid", ["", ".", "..", "../../etc/passwd", "a/b", "a\n"])
def test_a_uid_that_is_no_file_name_is_refused(files: CdiFiles, uid: str) -> None:
    with pytest.raises(ClaimError, match="UID cannot be part of a file name"):
        files.remove(ClaimKey("ns", "c", uid))


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="it must be writable for the driver"):
        CdiFiles(tmp_path / "file" / "cdi", driver=DRIVER, kind=KIND).check_writable()
