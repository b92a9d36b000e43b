"""Claims that are gone from the API: what proves that their devices may be freed, and what does not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dra_driver.daemon.clock import SystemClock
from dra_driver.errors import HostError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, AllocationResult, DeviceAllocationResult
from dra_driver.kubelet import sweep as sweep_module
from dra_driver.kubelet.cdi import ContainerEdits, DeviceNode
from dra_driver.kubelet.device_users import DeviceUsers
from dra_driver.kubelet.driver import Plan
from dra_driver.kubelet.journal import ClaimKey
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.pod_resources import PodClaim
from dra_driver.kubelet.sweep import GRACE, MOST_RELEASES, Sweep
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import NODE, allocated, result


class Hands(SystemClock):
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


class Outcomes(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def sweep(self, outcome: str, count: int = 1) -> None:
        self.seen.extend([outcome] * count)


class Bed:
    """A host, its sweep and its processes."""

    def __init__(self, host: Host, client: Client, proc: Path) -> None:
        self.host, self.client, self.proc = host, client, proc
        self.clock, self.outcomes = Hands(), Outcomes()
        (proc / "1" / "fd").mkdir(parents=True)
        (proc / "1" / "maps").touch()
        plain = host.driver.plan
        number = Path("/dev/null").stat().st_rdev
        numbered = DeviceNode("/dev/toy", type="c", major=os.major(number), minor=os.minor(number))
        host.driver.plan = lambda allocation: with_node(plain(allocation), numbered)  # type: ignore[method-assign]
        self.sweep = Sweep(host.driver, client, host.journal, host.keeper, DeviceUsers(proc), node=NODE, clock=self.clock, observer=self.outcomes)

    def prepared(self, name: str, device: str = "toy-0") -> ClaimKey:
        claim = allocated(self.client, name, result(device))
        assert devices(self.host.prepare(claim)) == [device]
        return claim

    def rounds(self, *, times: int = 2, apart: float = GRACE + 1) -> list[str]:
        """Rounds with time between them; what came of each claim in the last one."""
        for _ in range(times):
            self.outcomes.seen.clear()
            self.sweep.round()
            self.clock.time += apart
        return self.outcomes.seen

    def delete(self, claim: ClaimKey) -> None:
        self.client.delete(RESOURCE_CLAIMS, claim.name, claim.namespace)


def with_node(plan: Plan, node: DeviceNode) -> Plan:
    edits = ContainerEdits(device_nodes=(node,))
    return Plan(tuple(type(device)(device.result, device.uuid, edits) for device in plan.devices), plan.common)


@pytest.fixture
def bed(host: Host, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(sweep_module, "CALL_DEADLINE", 0.5)
    return Bed(host, client, tmp_path / "proc")


def test_a_claim_that_is_gone_twice_and_for_long_is_freed(bed: Bed) -> None:
    gone, here = bed.prepared("gone"), bed.prepared("here", "toy-1")
    bed.delete(gone)
    assert sorted(bed.rounds(times=1)) == ["absent", "kept"]
    assert bed.host.held() == {gone.uid: ["toy-0"], here.uid: ["toy-1"]}
    assert sorted(bed.rounds(times=1)) == ["kept", "released"]
    assert bed.host.held() == {here.uid: ["toy-1"]}
    assert bed.host.specs() == {here.uid}
    assert bed.host.unprepare(gone) is None, "an unprepare that comes after all is a success"


def replace(bed: Bed, claim: ClaimKey) -> None:
    bed.delete(claim)
    allocated(bed.client, claim.name, result("toy-0"))


def deallocate(bed: Bed, claim: ClaimKey) -> None:
    found = bed.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    found.status.allocation = None
    bed.client.replace(RESOURCE_CLAIMS, found, subresource="status")


def move_to_another_node(bed: Bed, claim: ClaimKey) -> None:
    deallocate(bed, claim)
    found = bed.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    found.status.allocation = AllocationResult(devices=DeviceAllocationResult(results=[result("toy-0", pool="node-b")]))
    bed.client.replace(RESOURCE_CLAIMS, found, subresource="status")


@pytest.mark.parametrize("lose", [Bed.delete, replace, deallocate, move_to_another_node])
def test_what_counts_as_gone(bed: Bed, lose) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    claim = bed.prepared("c")
    lose(bed, claim)
    assert bed.rounds() == ["released"]


def test_two_rounds_are_not_enough_if_they_are_close_and_one_is_not_if_it_is_late(bed: Bed) -> None:
    bed.delete(bed.prepared("c"))
    assert bed.rounds(times=4, apart=GRACE / 5) == ["absent"]
    assert bed.host.held() != {}
    assert bed.rounds(times=2, apart=GRACE / 5) == ["released"]


def test_a_claim_that_comes_back_starts_anew(bed: Bed) -> None:
    claim = bed.prepared("c")
    found = bed.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    allocation = found.status.allocation
    deallocate(bed, claim)
    assert bed.rounds(times=1) == ["absent"]
    again = bed.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    again.status.allocation = allocation
    bed.client.replace(RESOURCE_CLAIMS, again, subresource="status")
    assert bed.rounds(times=1) == ["kept"]
    deallocate(bed, claim)
    assert bed.rounds(times=1) == ["absent"]
    assert bed.host.held() != {}


def test_a_claim_that_was_prepared_again_meanwhile_starts_anew(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    assert bed.rounds(times=1) == ["absent"]
    bed.host.unprepare(claim)
    bed.host.journal.reserve([bed.host.keeper._reader.plan(claim, DeviceAllocationResult(results=[result("toy-0")])).entry])
    assert bed.rounds(times=1) == ["absent"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "Unauthorized"), (403, "Forbidden"), (500, "InternalError"), (503, "ServiceUnavailable"), (404, "NotFound")],
)
def test_an_api_server_that_answers_everything_with_an_error_frees_nothing(bed: Bed, api: ApiServer, status: int, reason: str) -> None:
    claim = bed.prepared("c")
    fault = api.fail("GET", "", status=status, reason=reason, message="no", times=None)
    for _ in range(5):
        assert bed.rounds(times=1)[-1] in {"unknown", "absent"}
    assert bed.host.held() == {claim.uid: ["toy-0"]}
    fault.release()


def test_an_api_server_that_does_not_answer_frees_nothing(bed: Bed, api: ApiServer) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    api.close()
    assert bed.rounds(times=3) == ["unknown"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}


def test_an_api_server_of_another_cluster_frees_nothing(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    bed.client.delete(NODES, NODE)
    assert bed.rounds(times=3) == ["unknown"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}


def test_a_device_that_a_process_has_open_is_not_freed(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    opened = bed.proc / "1" / "fd" / "3"
    opened.symlink_to("/dev/null")
    assert bed.rounds(times=3) == ["busy"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}
    opened.unlink()
    assert bed.rounds(times=1) == ["released"]


def test_a_claim_that_a_running_pod_has_is_not_freed_though_no_process_has_the_device_open(bed: Bed) -> None:
    claim, other = bed.prepared("c"), bed.prepared("other", "toy-1")
    bed.delete(claim)
    bed.delete(other)
    pods = [PodClaim(claim.namespace, claim.name, (), frozenset())]
    bed.sweep._pods = lambda: pods
    assert sorted(bed.rounds()) == ["busy", "released"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}
    pods.clear()
    assert bed.rounds(times=1) == ["released"]


def test_a_kubelet_that_does_not_tell_of_its_pods_frees_nothing(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)

    def silent() -> list[PodClaim]:
        raise HostError("no answer")

    bed.sweep._pods = silent
    assert bed.rounds(times=3) == ["unknown"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}


def test_processes_that_cannot_be_seen_free_nothing(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    bed.sweep._users = DeviceUsers(None)
    assert bed.rounds(times=3) == ["failed"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}


def test_a_row_that_changes_while_the_sweep_looks_is_not_freed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = bed.prepared("c")
    bed.delete(claim)
    bed.rounds(times=1)
    known = bed.sweep._is_our_cluster

    def meanwhile() -> bool:
        (entry,) = bed.host.journal.entries()
        bed.host.journal.reserve([entry])  # as a prepare does
        return known()

    monkeypatch.setattr(bed.sweep, "_is_our_cluster", meanwhile)
    assert bed.rounds(times=1) == ["busy"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}


def test_only_a_few_are_freed_in_a_round(bed: Bed) -> None:
    claims = [bed.prepared(f"c{number}", f"toy-{number}") for number in range(MOST_RELEASES + 2)]
    for claim in claims:
        bed.delete(claim)
    assert bed.rounds() == ["released"] * MOST_RELEASES
    assert bed.rounds(times=1) == ["released"] * 2
    assert bed.host.held() == {}


def test_a_round_repairs_cdi_specs(bed: Bed) -> None:
    claim = bed.prepared("c")
    bed.host.cdi.path(claim).unlink()
    bed.rounds(times=1)
    assert bed.host.specs() == {claim.uid}


def test_a_freed_device_goes_to_who_waits_for_it(bed: Bed) -> None:
    gone = bed.prepared("gone")
    bed.delete(gone)
    bed.rounds(times=1)
    wanted = allocated(bed.client, "wanted", result("toy-0"))
    bed.host.keeper._guard_patience = 30.0
    outcome: list[object] = []
    waiting = threading.Event()
    guard_wait = bed.host.keeper.guard._wait
    bed.host.keeper.guard._wait = lambda *given: (waiting.set(), guard_wait(*given))[1]  # type: ignore[method-assign, func-returns-value]
    thread = threading.Thread(target=lambda: outcome.append(bed.host.prepare(wanted)))
    thread.start()
    assert waiting.wait(20)
    assert bed.rounds(times=1)[0] == "released"
    thread.join(20)
    assert devices(outcome[0]) == ["toy-0"]  # type: ignore[arg-type]


def test_an_instance_that_does_not_lead_sweeps_nothing(bed: Bed) -> None:
    stop = threading.Event()
    asked: list[bool] = []

    def leads() -> bool:
        asked.append(True)
        stop.set()
        return False

    bed.prepared("c")
    bed.sweep._leads = leads
    bed.sweep.run(stop)
    assert asked == [True]
    assert bed.outcomes.seen == []
    assert sweep_module.INTERVAL < GRACE


def test_claims_whose_devices_cannot_be_freed_do_not_keep_others_from_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [bed.prepared(f"c{number}", f"toy-{number}") for number in range(MOST_RELEASES + 2)]
    for claim in claims:
        bed.delete(claim)
    last = bed.host.journal.entries()[-1].claim
    is_unused = bed.sweep._is_unused
    monkeypatch.setattr(bed.sweep, "_is_unused", lambda entry: entry.claim == last and is_unused(entry))
    assert sorted(bed.rounds()) == ["busy"] * (MOST_RELEASES + 1) + ["released"]
    assert last.uid not in bed.host.held()


def test_a_bug_of_the_driver_with_one_claim_does_not_keep_others_from_being_freed(bed: Bed) -> None:
    claims = [bed.prepared(f"c{number}", f"toy-{number}") for number in range(2)]
    for claim in claims:
        bed.delete(claim)
    bed.rounds(times=1)
    first, _ = bed.host.journal.entries()
    bed.host.driver.bug = first.devices[0].device
    assert bed.rounds(times=1) == ["failed", "released"]
    assert list(bed.host.held()) == [first.claim.uid]


def test_a_claim_that_cannot_be_read_does_not_keep_others_from_being_freed(bed: Bed, api: ApiServer) -> None:
    for number in range(2):
        bed.delete(bed.prepared(f"c{number}", f"toy-{number}"))
    first, _ = bed.host.journal.entries()
    api.fail("GET", f"resourceclaims/{first.claim.name}", status=400, reason="BadRequest", message="what is that?", times=None)
    assert bed.rounds() == ["unknown", "released"]
    assert list(bed.host.held()) == [first.claim.uid]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("", 200, "a proxy that says yes to everything"),
        ("resourceclaims", 404, "the server could not find the requested resource"),
        ("resourceclaims", 404, "404 page not found"),
    ],
)
def test_an_answer_that_is_not_about_the_claim_frees_nothing(bed: Bed, api: ApiServer, path: str, status: int, message: str) -> None:
    claim = bed.prepared("c")
    api.fail("GET", path, status=status, reason="NotFound", message=message, times=None)
    assert bed.rounds(times=3) == ["unknown"]
    assert bed.host.held() == {claim.uid: ["toy-0"]}
