"""Files about devices for the programs in containers (KEP-5304)."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import DraError, HostError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    DeviceAttribute,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
)
from dra_driver.kubelet.cdi import ContainerEdits
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import ClaimKeeper
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.driver import DeviceMetadata, Plan, PlannedDevice
from dra_driver.kubelet.journal import ClaimKey, Journal
from dra_driver.kubelet.metadata import POD_CLAIM_NAME, files_for
from dra_driver.sandbox.container import start_container
from tests.kubelet.host import Host
from tests.kubelet.toy import ToyDriver, allocated, result

CLAIM = ClaimKey("ns", "training", "8f1c-uid")
DRIVER, KIND = "gpu.example.com", "k8s.gpu.example.com/claim"
BASE = "/var/run/kubernetes.io/dra-device-attributes"
MODEL = DeviceMetadata({"model": DeviceAttribute(string="LATEST"), "resource.kubernetes.io/numaNode": DeviceAttribute(int_=1)})


def planned(request: str, device: str, metadata: DeviceMetadata | None = MODEL, edits: ContainerEdits | None = None) -> PlannedDevice:
    result = DeviceRequestAllocationResult(request=request, driver=DRIVER, pool="node-a", device=device)
    return PlannedDevice(result, f"UUID-{device}", ContainerEdits(env=(f"{device.upper()}=1",)) if edits is None else edits, metadata)


@pytest.fixture
def files(tmp_path: Path) -> CdiFiles:
    return CdiFiles(tmp_path / "cdi", driver=DRIVER, kind=KIND)


def stream(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, read as a reader does: one JSON value after the other."""
    text, found = path.read_text(), []
    while text.strip():
        value, end = json.JSONDecoder().raw_decode(text.lstrip())
        found.append(value)
        text = text.lstrip()[end:]
    return found


def mounted(tmp_path: Path, ids: list[str]) -> dict[str, Path]:
    """What a container with these CDI ids finds, by its path there."""
    return {mount.container_path: Path(mount.host_path) for mount in start_container(ids, directories=[tmp_path / "cdi"]).mounts}


def test_a_container_finds_a_file_about_the_devices_of_its_request(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu", "a"), planned("gpu", "b"), planned("nic", "c")))
    assert files.ensure(CLAIM, plan)
    ids = files.device_ids(CLAIM, plan)
    assert ids == (
        (f"{KIND}=8f1c-uid-a", f"{KIND}=8f1c-uid_gpu"),
        (f"{KIND}=8f1c-uid-b",),
        (f"{KIND}=8f1c-uid-c", f"{KIND}=8f1c-uid_nic"),
    ), "once for each request, with its first device"
    names = [one["name"] for one in json.loads(files.path(CLAIM).read_text())["devices"]]
    assert names == ["8f1c-uid-a", "8f1c-uid-b", "8f1c-uid-c", "8f1c-uid_gpu", "8f1c-uid_nic"]
    found = mounted(tmp_path, [*ids[0], *ids[1]])
    assert list(found) == [f"{BASE}/resourceclaims/training/gpu/gpu.example.com-metadata.json"]
    path = next(iter(found.values()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    attributes = {"model": {"string": "LATEST"}, "resource.kubernetes.io/numaNode": {"int": 1}}
    devices = [{"driver": DRIVER, "pool": "node-a", "name": name, "attributes": attributes} for name in ("a", "b")]
    assert stream(path) == [
        {
            "apiVersion": f"metadata.resource.k8s.io/{version}",
            "kind": "DeviceMetadata",
            "metadata": {"name": "training", "namespace": "ns", "uid": "8f1c-uid", "generation": 1},
            "requests": [{"name": "gpu", "devices": devices}],
        }
        for version in ("v1beta1", "v1alpha1")
    ]
    mounts = start_container(list(ids[0]), directories=[tmp_path / "cdi"]).mounts
    assert [mount.options for mount in mounts] == [("ro", "bind")]


def test_a_claim_from_a_template_is_found_under_the_pods_name_for_it(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu", "a"),))
    files.ensure(CLAIM, plan, pod_claim="accelerator")
    found = mounted(tmp_path, list(files.device_ids(CLAIM, plan)[0]))
    assert list(found) == [f"{BASE}/resourceclaimtemplates/accelerator/gpu/gpu.example.com-metadata.json"]
    assert {one["podClaimName"] for path in found.values() for one in stream(path)} == {"accelerator"}


def test_the_alternative_that_was_taken_stands_in_the_file_but_not_in_its_path(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu/small", "a"),))
    files.ensure(CLAIM, plan)
    found = mounted(tmp_path, list(files.device_ids(CLAIM, plan)[0]))
    assert list(found) == [f"{BASE}/resourceclaims/training/gpu/gpu.example.com-metadata.json"]
    assert [one["requests"][0]["name"] for path in found.values() for one in stream(path)] == ["gpu/small", "gpu/small"]


def test_network_devices_have_their_own_data() -> None:
    network = DeviceMetadata(network=NetworkDeviceData(interface_name="net1", ips=["10.0.0.2/24"], hardware_address="02:00:00:00:00:01"))
    (file,) = files_for(DRIVER, CLAIM, "", Plan((planned("nic", "a", network),)))
    (device,) = json.loads(file.content(1).splitlines()[0])["requests"][0]["devices"]
    assert device["networkData"] == {"interfaceName": "net1", "ips": ["10.0.0.2/24"], "hardwareAddress": "02:00:00:00:00:01"}


def test_without_metadata_there_is_nothing(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu", "a", None), planned("nic", "b")))
    files.ensure(CLAIM, plan)
    assert files.device_ids(CLAIM, plan)[0] == (f"{KIND}=8f1c-uid-a",)
    assert [path.name for path in tmp_path.glob("cdi/gpu.example.com-metadata/*/*")] == ["nic.json"]
    assert files_for(DRIVER, CLAIM, "", Plan((planned("gpu", "a", None),))) == ()


def test_metadata_alone_is_enough_for_a_device_that_adds_nothing_else(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu", "a", edits=ContainerEdits()),))
    files.ensure(CLAIM, plan)
    assert files.device_ids(CLAIM, plan) == ((f"{KIND}=8f1c-uid_gpu",),)
    assert len(mounted(tmp_path, list(files.device_ids(CLAIM, plan)[0]))) == 1


def test_a_missing_file_is_made_again_and_an_outdated_one_has_the_next_generation(files: CdiFiles, tmp_path: Path) -> None:
    plan = Plan((planned("gpu", "a"),))
    path = tmp_path / "cdi" / "gpu.example.com-metadata" / "8f1c-uid" / "gpu.json"
    files.ensure(CLAIM, plan)
    assert not files.ensure(CLAIM, plan)
    path.unlink()
    assert files.ensure(CLAIM, plan)
    assert [one["metadata"]["generation"] for one in stream(path)] == [1, 1]
    assert files.ensure(CLAIM, Plan((planned("gpu", "a", DeviceMetadata({"model": DeviceAttribute(string="OTHER")})),)))
    assert [one["metadata"]["generation"] for one in stream(path)] == [2, 2]
    path.write_text("{")
    assert files.ensure(CLAIM, plan)
    assert [one["metadata"]["generation"] for one in stream(path)] == [1, 1]


def test_unprepare_takes_the_files_away_and_may_be_repeated(files: CdiFiles, tmp_path: Path) -> None:
    files.ensure(CLAIM, Plan((planned("gpu", "a"),)))
    files.remove(CLAIM)
    files.remove(CLAIM)
    assert [path.name for path in tmp_path.rglob("*")] == ["cdi", "gpu.example.com-metadata"]


def test_an_unusable_directory_is_that_claims_error(files: CdiFiles, tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "gpu.example.com-metadata").touch()
    with pytest.raises(HostError, match=r"claim ns/training \(UID 8f1c-uid\): device metadata .*gpu.json: Not a directory"):
        files.ensure(CLAIM, Plan((planned("gpu", "a"),)))
    assert not files.path(CLAIM).exists(), "a spec that mounts a missing file would stop the container"


def test_what_the_pod_calls_the_claim_is_known_after_everything_but_the_journal_is_lost(client: Client, tmp_path: Path) -> None:
    claim = allocated(client, "training-x7f2k", result("toy-0"))
    client.patch(RESOURCE_CLAIMS, claim.name, claim.namespace, changes={"metadata": {"annotations": {POD_CLAIM_NAME: "accelerator"}}})
    database, driver = Database(tmp_path / "state.db"), ToyDriver()
    driver.telling, driver.node_path = {"toy-0"}, "/dev/null"

    def keeper() -> ClaimKeeper:
        cdi = CdiFiles(tmp_path / "cdi", driver=driver.name, kind=driver.cdi_kind)
        return ClaimKeeper(driver, client, Journal(database), cdi)

    first = keeper()
    outcome = first.prepare([claim])[claim.uid]
    assert not isinstance(outcome, DraError)
    ids = list(outcome[0].cdi_ids)
    before = mounted(tmp_path, ids)
    assert list(before) == [f"{BASE}/resourceclaimtemplates/accelerator/gpu/toy.example.com-metadata.json"]
    shutil.rmtree(tmp_path / "cdi")
    second = keeper()
    second.restore()
    assert mounted(tmp_path, ids) == before
    assert all(path.exists() for path in before.values())
    assert second.unprepare([claim]) == {claim.uid: None}
    assert [path.name for path in (tmp_path / "cdi").rglob("*")] == ["toy.example.com-metadata"]
    database.close()


def test_a_prepare_that_fails_after_the_metadata_leaves_none(client: Client, tmp_path: Path) -> None:
    host = Host(client, tmp_path)
    host.driver.telling = {"toy-0"}
    host.driver.node_path = "no/path/{}"  # which runtimes refuse
    claim = allocated(client, "c", result("toy-0"))
    assert "container runtimes refuse" in str(host.prepare(claim))
    assert (host.held(), [path for path in (tmp_path / "cdi").rglob("*") if claim.uid in str(path)]) == ({}, [])
    host.close()
