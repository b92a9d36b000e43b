"""Preparing and unpreparing claims."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.errors import ClaimError, ClaimRetryError, DraError, HostError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, AllocationResult, DeviceAllocationResult
from dra_driver.kubelet import claims as claims_module
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import Prepared, PreparedDevice
from dra_driver.kubelet.driver import Plan, PlannedDevice
from dra_driver.kubelet.journal import ClaimKey
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import NODE, allocated, result


def test_a_prepared_claim_has_an_answer_a_journal_entry_and_a_cdi_spec(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"), result("toy-3", "gpu/small"))
    assert host.prepare(claim) == (
        PreparedDevice(("gpu",), NODE, "toy-0", (f"k8s.toy.example.com/claim={claim.uid}-toy-0",)),
        PreparedDevice(("gpu",), NODE, "toy-3", (f"k8s.toy.example.com/claim={claim.uid}-toy-3",)),
    )
    assert host.held() == {claim.uid: ["toy-0", "toy-3"]}
    assert host.specs() == {claim.uid}


def test_preparing_again_gives_the_same_answer_also_after_a_restart(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    first = host.prepare(claim)
    assert host.prepare(claim) == first
    host.close()
    host.restart()
    assert host.prepare(claim) == first
    assert host.held() == {claim.uid: ["toy-0"]}


def test_preparing_again_writes_nothing_whatever_the_order_of_the_devices(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-3"), result("toy-0", "more"), result("toy-1", "most"))
    host.prepare(claim)
    revision = host.journal.entries()[0].revision
    assert devices(host.prepare(claim)) == ["toy-3", "toy-0", "toy-1"]
    assert host.journal.entries()[0].revision == revision


def test_preparing_again_repairs_a_lost_cdi_spec(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    host.cdi.path(claim).unlink()
    assert devices(host.prepare(claim)) == ["toy-0"]
    assert host.specs() == {claim.uid}


def test_a_start_repairs_the_cdi_specs_of_prepared_claims_and_leaves_all_other_files_alone(host: Host, client: Client) -> None:
    lost, outdated = allocated(client, "lost", result("toy-0")), allocated(client, "outdated", result("toy-1"))
    host.keeper.prepare([lost, outdated])
    host.cdi.path(lost).unlink()
    host.driver.node_path = "/dev/new/{}"
    orphan = ClaimKey("default", "orphan", "orphan-uid")
    host.cdi.ensure(orphan, host.driver.plan(host.journal.entries()[0].allocation))
    foreign = host.directory / "cdi" / "nvidia.yaml"
    foreign.write_text("kind: nvidia.com/gpu")
    host.close()
    host.restart()
    assert host.specs() == {lost.uid, outdated.uid, orphan.uid}, "a container of the orphan may be alive"
    assert "/dev/new/toy-1" in host.cdi.path(outdated).read_text()
    assert foreign.exists()


def test_a_start_with_a_device_that_is_gone_keeps_its_claim(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    host.driver.broken = {"toy-0"}
    host.close()
    host.restart()
    assert host.held() == {claim.uid: ["toy-0"]}


def test_a_start_is_not_stopped_by_one_claim(host: Host, client: Client) -> None:
    bad, good = allocated(client, "bad", result("toy-0")), allocated(client, "good", result("toy-1"))
    host.keeper.prepare([bad, good])
    for claim in (bad, good):
        host.cdi.path(claim).unlink()
    host.driver.bug = "toy-0"
    host.close()
    host.restart()
    assert host.specs() == {good.uid}
    assert set(host.held()) == {bad.uid, good.uid}


def test_a_device_that_is_another_piece_of_hardware_now_is_not_given_to_the_old_claim(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    host.cdi.path(claim).unlink()
    host.driver.generation = "NEW"
    host.close()
    host.restart()
    assert host.specs() == set()
    error = host.prepare(claim)
    assert isinstance(error, ClaimError)
    assert "device toy-0 was TOY-toy-0 and is NEW-toy-0 now" in str(error)
    assert host.keeper.unprepare([claim]) == {claim.uid: None}


def test_an_unprepare_never_overtakes_a_prepare_of_its_claim(host: Host, client: Client, api: ApiServer) -> None:
    claim = allocated(client, "c", result("toy-0"))
    slow = api.hang("GET", "resourceclaims")
    prepare = threading.Thread(target=host.prepare, args=(claim,))
    prepare.start()
    assert slow.hit.wait(10)
    unprepare = threading.Thread(target=host.keeper.unprepare, args=([claim],))
    unprepare.start()
    slow.release()
    for thread in (prepare, unprepare):
        thread.join(10)
        assert not thread.is_alive()
    assert host.held() == {}
    assert host.specs() == set()


def test_reading_the_claims_of_a_call_ends_in_time_for_all_of_them(
    host: Host, client: Client, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [allocated(client, f"c{number}", result(f"toy-{number}")) for number in range(3)]
    monkeypatch.setattr(claims_module, "READ_DEADLINE", 0.3)
    api.hang("GET", "resourceclaims", times=None)
    began = time.monotonic()
    outcomes = host.keeper.prepare(claims).values()
    assert [type(one) for one in outcomes] == [ClaimRetryError] * 3
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("make", "text", "retryable"),
    [
        pytest.param(lambda client: ClaimKey("default", "gone", "u"), r"default/gone \(UID u\) does not exist any more", False, id="gone"),
        pytest.param(lambda client: allocated(client, "c"), "is not allocated: status.allocation is empty", True, id="not allocated"),
        pytest.param(
            lambda client: replace(allocated(client, "c", result("toy-0")), uid="old"),
            "was replaced by another one of that name",
            False,
            id="replaced",
        ),
        pytest.param(
            lambda client: allocated(client, "c", result("toy-0", driver="other.example.com")),
            "has no device of driver toy.example.com: status.allocation.devices.results name other.example.com",
            False,
            id="another driver's",
        ),
        pytest.param(lambda client: allocated(client, "c", result("nope")), "unknown device node-a/nope", False, id="unknown device"),
        pytest.param(lambda client: allocated(client, "c", result("toy-0", pool="node-b")), "unknown device node-b/toy-0", False, id="other pool"),
        pytest.param(
            lambda client: allocated(client, "c", result("toy-0"), result("toy-0", "b")),
            "device toy-0 more than once, without admin access",
            False,
            id="twice",
        ),
        pytest.param(lambda client: allocated(client, "c", result("toy-6")), "device node of toy-6 is missing", False, id="a broken device"),
        pytest.param(lambda client: allocated(client, "c", result("toy-7")), "internal error, please report it: ZeroDivisionError", True, id="a bug"),
    ],
)
def test_what_is_wrong_with_a_claim_is_its_own_error_and_holds_nothing(host: Host, client: Client, make, text: str, retryable: bool) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    host.driver.broken, host.driver.bug = {"toy-6"}, "toy-7"
    bad, good = make(client), allocated(client, "good", result("toy-5"))
    outcomes = host.keeper.prepare([bad, good])
    assert devices(outcomes[good.uid]) == ["toy-5"], "the other claims of the call are prepared"
    error = outcomes[bad.uid]
    assert isinstance(error, DraError)
    assert error.retryable is retryable
    with pytest.raises(type(error), match=text):
        raise error
    assert host.held() == {good.uid: ["toy-5"]}
    assert host.specs() == {good.uid}
    assert host.keeper.unprepare([bad]) == {bad.uid: None}


def test_an_api_server_that_does_not_answer_is_a_retryable_error(host: Host, client: Client, api: ApiServer) -> None:
    claim = allocated(client, "c", result("toy-0"))
    api.fail("GET", "resourceclaims", status=403, reason="Forbidden", message="no rights")
    error = host.prepare(claim)
    assert isinstance(error, ClaimRetryError)
    assert "no rights" in str(error)
    assert devices(host.prepare(claim)) == ["toy-0"]


def test_results_and_configurations_of_other_drivers_are_not_touched(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"), result("nic-0", driver="net.example.com", pool="elsewhere"))
    assert devices(host.prepare(claim)) == ["toy-0"]


def test_a_device_in_use_is_refused_with_its_holder_until_that_is_unprepared(host: Host, client: Client) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    host.prepare(first)
    error = host.prepare(second)
    assert isinstance(error, ClaimRetryError)
    assert f"still prepared for claim default/first (UID {first.uid})" in str(error)
    assert host.specs() == {first.uid}
    host.keeper.unprepare([first])
    assert devices(host.prepare(second)) == ["toy-0"]


@pytest.mark.parametrize("first", [True, None])
def test_a_device_of_two_requests_with_admin_access_is_held_once_and_answered_for_each(host: Host, client: Client, first: bool | None) -> None:
    claim = allocated(client, "c", result("toy-0", "watch", admin_access=first), result("toy-0", "tune/all", admin_access=True))
    outcome = host.prepare(claim)
    assert not isinstance(outcome, DraError)
    assert [(one.requests, one.device) for one in outcome] == [(("watch",), "toy-0"), (("tune",), "toy-0")]
    assert {one.cdi_ids for one in outcome} == {(f"k8s.toy.example.com/claim={claim.uid}-toy-0",)}
    assert host.held() == {claim.uid: ["toy-0"]}
    assert isinstance(host.prepare(allocated(client, "other", result("toy-0"))), DraError) is (first is None), "one that wants it alone is enough"


def test_shares_and_admin_access_disturb_nobody(host: Host, client: Client) -> None:
    owner = allocated(client, "owner", result("toy-0"))
    admin = allocated(client, "admin", result("toy-0", admin_access=True))
    shares = [allocated(client, f"share-{number}", result("toy-1", share_id=f"s{number}")) for number in range(2)]
    outcomes = host.keeper.prepare([owner, admin, *shares])
    assert [devices(outcome) for outcome in outcomes.values()] == [["toy-0"], ["toy-0"], ["toy-1"], ["toy-1"]]
    second = outcomes[shares[1].uid]
    assert not isinstance(second, DraError)
    assert second[0].share_id == "s1"


def test_a_claim_allocated_anew_gives_up_its_old_device(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    stored = client.get(RESOURCE_CLAIMS, "c", "default")
    assert stored.status.allocation is not None
    stored.status.allocation = None
    stored = client.replace(RESOURCE_CLAIMS, stored, subresource="status")
    stored.status.allocation = AllocationResult(devices=DeviceAllocationResult(results=[result("toy-1")]))
    client.replace(RESOURCE_CLAIMS, stored, subresource="status")
    assert devices(host.prepare(claim)) == ["toy-1"]
    assert host.held() == {claim.uid: ["toy-1"]}
    assert "toy-0" not in host.cdi.path(claim).read_text()
    assert devices(host.prepare(allocated(client, "other", result("toy-0")))) == ["toy-0"]


def test_a_cdi_directory_that_cannot_be_written_frees_the_devices_again(host: Host, client: Client, tmp_path: Path) -> None:
    bad = allocated(client, "bad", result("toy-0"))
    target = host.cdi.path(bad)
    target.parent.mkdir(exist_ok=True)
    target.mkdir()  # a directory in the file's place: rename fails
    error = host.prepare(bad)
    assert isinstance(error, HostError)
    assert "CDI directory must be writable" in str(error)
    assert host.held() == {}
    target.rmdir()
    assert devices(host.prepare(bad)) == ["toy-0"]


def test_a_repeat_that_fails_takes_nothing_from_a_prepared_claim(host: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    before = host.cdi.path(claim).read_bytes()

    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    host.driver.node_path = "/dev/new/{}"
    with monkeypatch.context() as disk:
        disk.setattr(os, "fchmod", full)
        assert isinstance(host.prepare(claim), HostError)
    assert host.held() == {claim.uid: ["toy-0"]}
    assert host.cdi.path(claim).read_bytes() == before
    assert isinstance(host.prepare(allocated(client, "other", result("toy-0"))), ClaimRetryError), "the device is still taken"


def test_a_process_that_dies_between_journal_and_cdi_spec_is_made_good_by_the_next(
    host: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = allocated(client, "c", result("toy-0"))

    def die(self: CdiFiles, claim: ClaimKey, plan: Plan, **more: Any) -> bool:
        raise SystemExit

    with monkeypatch.context() as death:
        death.setattr(CdiFiles, "ensure", die)
        with pytest.raises(SystemExit):
            host.prepare(claim)
    assert (host.held(), host.specs()) == ({claim.uid: ["toy-0"]}, set())
    host.close()
    host.restart()
    assert host.specs() == {claim.uid}
    assert devices(host.prepare(claim)) == ["toy-0"]
    assert host.keeper.unprepare([claim]) == {claim.uid: None}
    assert (host.held(), host.specs()) == ({}, set())


def test_unprepare_needs_neither_the_claim_nor_the_api_server(host: Host, client: Client, api: ApiServer) -> None:
    claim = allocated(client, "c", result("toy-0"))
    host.prepare(claim)
    api.close()
    assert host.keeper.unprepare([claim, ClaimKey("default", "never", "never-prepared")]) == {claim.uid: None, "never-prepared": None}
    assert host.held() == {}
    assert host.specs() == set()


def test_an_unprepare_that_fails_keeps_the_device_reserved_and_can_be_repeated(host: Host, client: Client) -> None:
    claim, other = allocated(client, "c", result("toy-0")), allocated(client, "other", result("toy-1"))
    host.keeper.prepare([claim, other])
    host.cdi.path(claim).unlink()
    host.cdi.path(claim).mkdir()
    outcomes = host.keeper.unprepare([claim, other])
    assert isinstance(outcomes[claim.uid], HostError)
    assert outcomes[other.uid] is None
    assert host.held() == {claim.uid: ["toy-0"]}
    host.cdi.path(claim).rmdir()
    assert host.keeper.unprepare([claim]) == {claim.uid: None}
    assert host.held() == {}


def test_many_claims_at_once_from_many_threads(host: Host, client: Client) -> None:
    claims = [allocated(client, f"c{number}", result(f"toy-{number % 8}")) for number in range(32)]
    outcomes: dict[str, Prepared | DraError] = {}

    def prepare(part: list[ClaimKey]) -> None:
        outcomes.update(host.keeper.prepare(part))

    threads = [threading.Thread(target=prepare, args=(claims[start : start + 4],)) for start in range(0, 32, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = {uid for uid, outcome in outcomes.items() if not isinstance(outcome, DraError)}
    assert len(winners) == 8
    assert all(isinstance(outcome, ClaimRetryError) for uid, outcome in outcomes.items() if uid not in winners)
    assert sorted(device for held in host.held().values() for device in held) == [f"toy-{number}" for number in range(8)]
    assert host.specs() == winners == set(host.held())


def test_errors_say_what_a_person_can_do(host: Host, client: Client) -> None:
    error = host.prepare(ClaimKey("default", "gone", "u"))
    assert isinstance(error, ClaimError)
    assert "delete the pod" in str(error)


def test_a_bug_in_what_a_driver_says_of_one_device_is_the_fault_of_its_claim_alone(
    host: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = allocated(client, "bad", result("toy-0")), allocated(client, "good", result("toy-1"))

    def related(uuid: str) -> list[str]:
        if uuid == "TOY-toy-0":
            raise ZeroDivisionError("a bug")
        return []

    host.close()
    monkeypatch.setattr(host.driver, "related", related)
    host.restart()
    outcomes = host.keeper.prepare([bad, good])
    assert devices(outcomes[good.uid]) == ["toy-1"]
    assert "internal error, please report it: ZeroDivisionError" in str(outcomes[bad.uid])
    assert host.held() == {good.uid: ["toy-1"]}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param(lambda _: (), "the driver's plan has no device node-a/toy-0 of request gpu, which is allocated", id="left out"),
        pytest.param(lambda device: (device, device), "toy-0 of request gpu, which is not allocated, or has it twice", id="twice"),
        pytest.param(lambda device: (replace(device, result=result("toy-7")),), "has device node-a/toy-7 of request gpu, which is not", id="other"),
        pytest.param(lambda device: (replace(device, uuid=""),), "has device node-a/toy-0 of request gpu without a uuid", id="no uuid"),
    ],
)
def test_a_plan_that_is_not_of_the_allocation_starts_no_pod(
    host: Host, client: Client, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[PlannedDevice], tuple[PlannedDevice, ...]], told: str
) -> None:
    plain = host.driver.plan
    monkeypatch.setattr(host.driver, "plan", lambda allocation: Plan(wrong(plain(allocation).devices[0])))
    assert told in str(host.prepare(allocated(client, "one", result("toy-0"))))
    assert host.held() == {}


def test_two_devices_of_a_claim_that_are_the_same_hardware_are_the_fault_of_that_claim_alone(
    host: Host, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = host.driver.plan

    def plan(allocation: DeviceAllocationResult) -> Plan:
        found = plain(allocation)
        return Plan(tuple(replace(one, uuid=one.uuid.replace("toy-7", "toy-0")) for one in found.devices), found.common)

    monkeypatch.setattr(host.driver, "plan", plan)
    bad, good = allocated(client, "bad", result("toy-0"), result("toy-7", "b")), allocated(client, "good", result("toy-1"))
    outcomes = host.keeper.prepare([bad, good])
    assert devices(outcomes[good.uid]) == ["toy-1"]
    error = outcomes[bad.uid]
    assert isinstance(error, ClaimError)
    assert "toy-0" in str(error)
    assert "toy-7" in str(error)


def test_the_same_share_is_not_given_to_two_claims(host: Host, client: Client) -> None:
    first, second = (allocated(client, name, result("toy-0", share_id="s1")) for name in ("first", "second"))
    assert devices(host.prepare(first)) == ["toy-0"]
    assert "still prepared for claim default/first" in str(host.prepare(second))


def test_repeating_a_prepare_writes_nothing_whatever_the_order_of_the_devices(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-3"), result("toy-0"), result("toy-5", share_id="b"), result("toy-5", share_id="a"))
    assert devices(host.prepare(claim)) == ["toy-3", "toy-0", "toy-5", "toy-5"]
    before = host.journal.entries()[0].revision
    assert devices(host.prepare(claim)) == ["toy-3", "toy-0", "toy-5", "toy-5"]
    assert host.journal.entries()[0].revision == before
