"""The journal is lost: what claims hold is found again elsewhere, and no device gets a second holder."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import ApiError, ClaimRetryError, StoppedError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import (
    RESOURCE_CLAIMS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
)
from dra_driver.kubelet.cdi_files import ANNOTATION_HELD
from dra_driver.kubelet.driver import HostChange
from dra_driver.kubelet.journal import ClaimKey, Entry, Journal
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet import damage
from tests.kubelet.damage import LOSSES
from tests.kubelet.host import Host, devices
from tests.kubelet.pod_resources_double import PodResourcesDouble, prepared
from tests.kubelet.toy import DRIVER, NODE, allocated, result

SECRET = "s3cret"


@pytest.fixture
def kubelet(host: Host, short: Path) -> Iterator[PodResourcesDouble]:
    one = PodResourcesDouble(short / "kubelet.sock")
    host.pod_resources = one.socket
    yield one
    one.stop()


def configured(client: Client, name: str, *results: DeviceRequestAllocationResult) -> ClaimKey:
    """An allocated claim with a configuration."""
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters={"token": SECRET})
    return allocated(client, name, *results, config=[DeviceAllocationConfiguration(source="FromClaim", opaque=opaque)])


def lose(host: Host, *, how: Callable[[Path], None] = damage.header, specs: bool = False) -> list[Entry]:
    """Ends the process, damages the journal, with `specs` the CDI specs as well; returns what the journal said."""
    entries = host.journal.entries()
    host.close()
    how(host.directory / "state.db")
    if specs:
        shutil.rmtree(host.directory / "cdi")
    return entries


def lose_and_restart(host: Host, **options: Any) -> list[Entry]:
    entries = lose(host, **options)
    host.restart()
    return entries


def delete(client: Client, claim: ClaimKey) -> None:
    client.delete(RESOURCE_CLAIMS, claim.name, claim.namespace)


def replaced(client: Client, claim: ClaimKey) -> ClaimKey:
    """Another claim of the same name on the same device."""
    delete(client, claim)
    return allocated(client, claim.name, result("toy-0"))


def refused(host: Host, client: Client, *wanted: str) -> str:
    """The reason why a new claim cannot have the devices."""
    error = host.prepare(allocated(client, f"thief-of-{'-'.join(wanted)}", *(result(device) for device in wanted)))
    assert isinstance(error, ClaimRetryError), error
    return str(error)


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING and text in record.message]


# From CDI specs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LOSSES)
def test_the_journal_is_rebuilt_from_specs_and_the_api(host: Host, client: Client, how: Callable[[Path], None]) -> None:
    claims = [
        configured(client, "configured", result("toy-0"), result("toy-1", "more/small")),
        allocated(client, "shared", result("toy-2", share_id="s1")),
        allocated(client, "admin", result("toy-0", admin_access=True)),
    ]
    for claim in claims:
        assert devices(host.prepare(claim))
    specs = {claim.uid: host.cdi.path(claim).read_bytes() for claim in claims}
    before = lose_and_restart(host, how=how)
    assert host.journal.entries() == before
    assert {claim.uid: host.cdi.path(claim).read_bytes() for claim in claims} == specs
    assert "still prepared for claim default/configured" in refused(host, client, "toy-1")
    assert "still prepared for claim default/shared" in refused(host, client, "toy-2")
    assert devices(host.prepare(claims[0])) == ["toy-0", "toy-1"]
    for claim in claims:
        assert host.unprepare(claim) is None
    assert (host.held(), host.specs()) == ({}, set())


def test_a_spec_holds_no_configuration(host: Host, client: Client) -> None:
    claim = configured(client, "c", result("toy-0"))
    host.prepare(claim)
    assert SECRET not in host.cdi.path(claim).read_text()


def gone(client: Client, claim: ClaimKey) -> None:
    delete(client, claim)


def deallocated(client: Client, claim: ClaimKey) -> None:
    stored = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    stored.status.allocation = None
    client.replace(RESOURCE_CLAIMS, stored, subresource="status")


@pytest.mark.parametrize("vanish", [gone, replaced, deallocated])
def test_a_claim_that_the_api_does_not_know_any_more_is_held_as_its_spec_says(
    host: Host, client: Client, vanish: Callable[[Client, ClaimKey], Any]
) -> None:
    host.driver.wants = {"toy-0": [HostChange("mode", "fast")]}
    (host.driver.settings_directory / "mode").write_text("eco")
    claim = configured(client, "c", result("toy-0"), result("toy-1", share_id="s1"))
    host.prepare(claim)
    host.driver.broken = {"toy-1"}  # its UUID stands in the spec
    (before,) = lose(host)
    vanish(client, claim)
    host.restart()
    (after,) = host.journal.entries()
    assert (after.claim, after.devices, after.changes) == (before.claim, before.devices, before.changes)
    assert after.allocation == DeviceAllocationResult(results=before.allocation.results)
    assert "still prepared for claim default/c" in refused(host, client, "toy-0")
    host.driver.broken = set()
    assert "still prepared for claim default/c" in refused(host, client, "toy-1")
    assert host.unprepare(claim) is None
    assert (host.held(), host.specs(), host.settings()) == ({}, set(), {"mode": "eco"})


def test_a_claim_that_was_allocated_anew_is_held_as_it_was_prepared(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    lose(host)
    deallocated(client, claim)
    stored = client.get(RESOURCE_CLAIMS, "c", "default")
    stored.status.allocation = AllocationResult(devices=DeviceAllocationResult(results=[result("toy-1")]))
    client.replace(RESOURCE_CLAIMS, stored, subresource="status")
    host.restart()
    assert host.held() == {claim.uid: ["toy-0"]}
    assert devices(host.prepare(claim)) == ["toy-1"]
    assert host.held() == {claim.uid: ["toy-1"]}


def test_hardware_that_was_exchanged_meanwhile_is_noticed(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    lose(host)
    host.driver.generation = "NEW"
    host.restart()
    assert "device toy-0 was TOY-toy-0 and is NEW-toy-0 now" in str(host.prepare(claim))


def without_what_is_held(host: Host, claim: ClaimKey) -> None:
    """The spec as an earlier version wrote it."""
    path = host.cdi.path(claim)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if ANNOTATION_HELD not in line).replace(f'"{claim.uid}",\n  }}', f'"{claim.uid}"\n  }}'))


def test_a_spec_of_an_earlier_version_needs_the_api(host: Host, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    known, unknown = configured(client, "known", result("toy-0")), allocated(client, "unknown", result("toy-1"))
    for claim in (known, unknown):
        host.prepare(claim)
        without_what_is_held(host, claim)
    assert host.specs() == {known.uid, unknown.uid}
    before = lose(host)
    delete(client, unknown)
    host.restart()
    assert host.journal.entries() == [one for one in before if one.claim == known]
    (told,) = warnings(caplog, "nobody knows any more what it holds")
    assert "default/unknown" in vars(told)["claim"]


def test_commits_that_were_cut_off_the_end_of_the_journal_are_found_again(host: Host, client: Client, tmp_path: Path) -> None:
    early, late = allocated(client, "early", result("toy-0")), allocated(client, "late", result("toy-1"))
    host.prepare(early)
    size = Path(f"{host.directory / 'state.db'}-wal").stat().st_size
    host.prepare(late)
    before = host.journal.entries()
    files = {part: Path(f"{host.directory / 'state.db'}{part}").read_bytes() for part in ("", "-wal")}
    host.close()
    for part, content in files.items():
        Path(f"{host.directory / 'state.db'}{part}").write_bytes(content[:size] if part else content)
    host.restart()
    assert host.journal.entries() == before
    assert "still prepared for claim default/late" in refused(host, client, "toy-1")


def test_copies_of_specs_and_specs_of_others_are_no_claims(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    path = host.cdi.path(claim)
    path.with_name(f"{path.stem}-copy.json").write_bytes(path.read_bytes())
    path.with_name(path.name.replace(claim.uid, "u")).write_text(path.read_text().replace(f'"{DRIVER}"', '"other.example.com"'))
    path.with_name(path.name.replace(claim.uid, "v")).write_text(path.read_text().replace('"devices', '"dev'))
    before = lose_and_restart(host)
    assert host.journal.entries() == before


def test_a_journal_that_is_complete_is_not_rebuilt(host: Host, client: Client, api: ApiServer, kubelet: PodResourcesDouble) -> None:
    host.prepare(allocated(client, "c", result("toy-0")))
    host.close()
    fault = api.fail("GET", "resourceclaims", status=503, times=None)
    host.restart()
    assert (fault.hits, kubelet.calls) == (0, 0)


# From the kubelet -------------------------------------------------------------------------------------------------


def ids(claim: ClaimKey, *names: str) -> list[str]:
    return [f"k8s.toy.example.com/claim={claim.uid}-{name}" for name in names]


@pytest.mark.parametrize("told_ids", [True, False])
def test_claims_of_running_pods_are_found_when_their_specs_are_lost_as_well(
    host: Host, client: Client, kubelet: PodResourcesDouble, told_ids: bool, caplog: pytest.LogCaptureFixture
) -> None:
    claim = configured(client, "c", result("toy-0"), result("toy-1", "more"))
    other = allocated(client, "other", result("toy-2", share_id="s1"))
    for one in (claim, other):
        host.prepare(one)
    told = [prepared("c", "toy-0", "toy-1", ids=ids(claim, "toy-0", "toy-1") if told_ids else None)]
    foreign = [prepared("net", "nic-0", driver="net.example.com")]
    shared = [prepared("other", "toy-2", share_id="s1", ids=ids(other, "toy-2-s1") if told_ids else None)]
    kubelet.add_pod("one", told, [*told, *foreign])
    kubelet.add_pod("two", shared)
    kubelet.add_pod("three", shared)
    before = lose_and_restart(host, specs=True)
    assert host.journal.entries() == before
    assert host.specs() == {claim.uid, other.uid}, "a container that restarts finds its devices"
    assert len(warnings(caplog, "claim was not in the journal and is in it again")) == 2


def test_the_uid_is_read_from_cdi_names_when_the_claim_is_gone(host: Host, client: Client, kubelet: PodResourcesDouble) -> None:
    claim = allocated(client, "c", result("toy-0"), result("toy-toy-0", "more"))
    host.prepare(claim)
    kubelet.add_pod("one", [prepared("c", "toy-toy-0", "toy-0", ids=ids(claim, "toy-toy-0", "toy-0"))])
    lose(host, specs=True)
    new = replaced(client, claim)
    host.restart()
    (entry,) = host.journal.entries()
    assert entry.claim == claim
    assert [held.uuid for held in entry.devices] == ["TOY-toy-0", "TOY-toy-toy-0"]
    error = host.prepare(new)
    assert isinstance(error, ClaimRetryError)
    assert f"still prepared for claim default/c (UID {claim.uid})" in str(error)
    assert host.unprepare(claim) is None
    assert devices(host.prepare(new)) == ["toy-0"]


@pytest.mark.parametrize("vanish", [gone, replaced, deallocated])
def test_a_claim_without_a_uid_is_held_by_its_name_until_the_kubelet_unprepares_that(
    host: Host, client: Client, kubelet: PodResourcesDouble, vanish: Callable[[Client, ClaimKey], Any]
) -> None:
    claim = allocated(client, "c" * 250, result("toy-1"))
    host.prepare(claim)
    kubelet.add_pod("one", [prepared(claim.name, "toy-1")])
    lose(host, specs=True)
    vanish(client, claim)
    host.restart()
    (entry,) = host.journal.entries()
    assert entry.claim.uid == f"pod-resources/default/{claim.name}"
    assert not entry.claim.has_uid
    assert [held.uuid for held in entry.devices] == ["TOY-toy-1"]
    assert f"still prepared for claim default/{claim.name} (UID not known)" in refused(host, client, "toy-1")
    assert host.specs() == set()
    assert host.unprepare(ClaimKey("default", "another", "another-uid")) is None
    assert len(host.held()) == 1
    assert host.unprepare(claim) is None
    assert host.held() == {}
    assert devices(host.prepare(allocated(client, "next", result("toy-1")))) == ["toy-1"]


def test_the_sweep_may_release_a_claim_without_a_uid(host: Host, client: Client, kubelet: PodResourcesDouble) -> None:
    kubelet.add_pod("one", [prepared("c", "toy-1")])
    lose_and_restart(host)
    (entry,) = host.journal.entries()
    assert host.keeper.release(entry, lambda: True) is None
    assert host.held() == {}


def test_a_device_that_the_driver_cannot_tell_is_held_by_its_name_and_reported(
    host: Host, client: Client, kubelet: PodResourcesDouble, caplog: pytest.LogCaptureFixture
) -> None:
    claim = allocated(client, "c", result("toy-0"), result("toy-1"), result("gpu-0", "foreign"))
    kubelet.add_pod("one", [prepared("c", "toy-0", "toy-1", "gpu-0", ids=ids(claim, "toy-0", "toy-1", "gpu-0"))])
    host.driver.broken, host.driver.bug = {"toy-0"}, "toy-1"
    lose_and_restart(host)
    (entry,) = host.journal.entries()
    assert {held.uuid for held in entry.devices} == {f"{NODE}/toy-0", f"{NODE}/toy-1", f"{NODE}/gpu-0"}
    told = [vars(record)["device"] for record in warnings(caplog, "a claim holds a device that this driver cannot tell")]
    assert told == ["toy-0", "toy-1", "gpu-0"]
    host.driver.broken, host.driver.bug = set(), ""
    for device in ("toy-0", "toy-1"):
        assert "still prepared for claim default/c" in refused(host, client, device)


def test_a_device_held_by_its_name_is_known_again_when_its_claim_is_prepared_again(host: Host, client: Client, kubelet: PodResourcesDouble) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    kubelet.add_pod("one", [prepared("c", "toy-0")])
    host.driver.broken = {"toy-0"}
    lose_and_restart(host, specs=True)
    host.driver.broken = set()
    assert devices(host.prepare(claim)) == ["toy-0"]
    assert [held.uuid for held in host.journal.entries()[0].devices] == ["TOY-toy-0"]


def test_a_device_of_two_claims_is_reported_and_free_when_both_are_gone(
    host: Host, client: Client, kubelet: PodResourcesDouble, caplog: pytest.LogCaptureFixture
) -> None:
    first = allocated(client, "first", result("toy-0"))
    second = allocated(client, "second", result("toy-0"), result("toy-1"))
    kubelet.add_pod("one", [prepared("first", "toy-0")])
    kubelet.add_pod("two", [prepared("second", "toy-0", "toy-1")])
    lose_and_restart(host)
    assert host.held() == {first.uid: ["toy-0"], second.uid: ["toy-0", "toy-1"]}
    (told,) = warnings(caplog, "a device is held by two claims")
    assert "default/first" in vars(told)["error"]
    assert host.unprepare(first) is None
    for device in ("toy-0", "toy-1"):
        assert "still prepared for claim default/second" in refused(host, client, device)
    share = host.prepare(allocated(client, "share-of-the-second-ones", result("toy-0", share_id="s1")))
    assert "still prepared for claim default/second" in str(share)
    assert host.unprepare(second) is None
    assert devices(host.prepare(allocated(client, "next", result("toy-0"), result("toy-1", "more"))))


def test_without_the_kubelets_list_the_rest_is_rebuilt_and_it_is_said_once(
    host: Host, client: Client, short: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    host.pod_resources = short / "nobody.sock"
    lose_and_restart(host)
    assert host.held() == {claim.uid: ["toy-0"]}
    assert len(warnings(caplog, "claims of running pods are not known")) == 1
    host.close()
    host.restart()
    assert len(warnings(caplog, "claims of running pods are not known")) == 1


# The API server does not tell -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "reason"), [(503, "ServiceUnavailable"), (401, "Unauthorized"), (403, "Forbidden"), (500, "InternalError")])
def test_a_start_waits_for_the_api_server_and_says_why(
    host: Host, client: Client, api: ApiServer, status: int, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_driver.kubelet.rebuild.CALL_DEADLINE", 0.0)
    claim = configured(client, "c", result("toy-0"))
    host.prepare(claim)
    before = lose(host)
    fault = api.fail("GET", "resourceclaims", status=status, reason=reason, message="not now", times=3)
    problems: list[str] = []

    def pause(seconds: float) -> bool:
        problems.append(host.rebuild.problem)
        assert host.held() == {}
        return False

    host.pause = pause
    host.restart()
    assert fault.hits == len(problems) == 3
    assert all("the API server does not tell of a claim" in one and "not now" in one for one in problems)
    assert host.rebuild.problem == ""
    assert len(warnings(caplog, "the journal cannot be rebuilt yet")) == 1
    assert host.journal.entries() == before


def test_a_claim_that_can_never_be_read_keeps_no_node_from_starting(host: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    lose(host)

    def unreadable(*_: object, **__: object) -> None:
        raise ApiError("ResourceClaim does not fit")

    monkeypatch.setattr(client, "get", unreadable)
    host.restart()
    assert host.held() == {claim.uid: ["toy-0"]}, "as its spec says"


def test_a_start_that_waits_can_be_ended_and_goes_on_next_time(host: Host, client: Client, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_driver.kubelet.rebuild.CALL_DEADLINE", 0.0)
    host.prepare(allocated(client, "c", result("toy-0")))
    before = lose(host)
    api.fail("GET", "resourceclaims", status=503)
    with pytest.raises(StoppedError, match="the API server does not tell of a claim"):
        host.restart()
    host.restart()
    assert host.journal.entries() == before


# Killed in the middle ---------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step: str) -> None:
    """Makes this process die at a step of the rebuild."""
    if step == "set aside":
        real = Path.rename

        def rename(self: Path, target: Any) -> Path:
            renamed = real(self, target)
            die()
            return renamed

        Path.rename = rename  # type: ignore[method-assign, assignment]
    elif step == "complete":
        Journal.complete = lambda self: die()  # type: ignore[method-assign]
    else:
        left = int(step)
        adopt = Journal.adopt

        def count(self: Journal, entry: Entry) -> Any:
            nonlocal left
            if not left:
                die()
            left -= 1
            return adopt(self, entry)

        Journal.adopt = count  # type: ignore[method-assign]


def start_and_die(connection: Any, directory: Path, socket: Path, step: str) -> None:
    die_at(step)
    Host(Client(connection, "killed"), directory, pod_resources=socket)


@pytest.mark.parametrize("step", ["set aside", "0", "1", "2", "3", "complete"])
def test_a_rebuild_that_was_killed_is_finished_by_the_next_start(
    host: Host, client: Client, api: ApiServer, kubelet: PodResourcesDouble, step: str
) -> None:
    claims = [allocated(client, f"c{number}", result(f"toy-{number}")) for number in range(4)]
    for claim in claims:
        host.prepare(claim)
    for number in (2, 3):
        host.cdi.path(claims[number]).unlink()
        kubelet.add_pod(f"p{number}", [prepared(f"c{number}", f"toy-{number}", ids=ids(claims[number], f"toy-{number}"))])
    before = lose(host)
    process = multiprocessing.get_context("spawn").Process(target=start_and_die, args=(api.connection, host.directory, host.pod_resources, step))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    host.restart()
    assert host.journal.entries() == before
    assert not host.journal.is_incomplete()
    assert host.specs() == {claim.uid for claim in claims}
    for number in range(4):
        assert f"still prepared for claim default/c{number}" in refused(host, client, f"toy-{number}")


def test_an_instance_that_starts_beside_another_one_takes_no_claim_for_lost_that_is_being_unprepared(host: Host, client: Client) -> None:
    """The specs are listed before the journal is read; in between the other instance may have ended the claim."""
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    specs = list(host.cdi.entries())
    host.unprepare(claim)
    host.rebuild._cdi = type("Earlier", (), {"entries": lambda self: specs, "path": lambda self, key: host.cdi.path(key)})()
    host.rebuild.run(lambda seconds: True)
    assert host.held() == {}
