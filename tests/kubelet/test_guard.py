"""Devices that another claim holds, repeated calls, and unprepares that come in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from dra_driver.errors import ClaimRetryError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaimConsumerReference
from dra_driver.kubelet import guard
from dra_driver.kubelet.claims import Caller
from dra_driver.kubelet.database import Database
from dra_driver.kubelet.journal import ClaimKey, Journal
from dra_driver.kubelet.observer import Observer
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import allocated, result

PATIENT = 30.0


class Waits(Observer):
    """Records how waits end."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def guard_wait(self, seconds: float, outcome: str) -> None:
        self.outcomes.append(outcome)


class Claims(Observer):
    """Records what became of claims."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    def claim(self, operation: str, outcome: str) -> None:
        self.outcomes.append((operation, outcome))


class Asked(Caller):
    """A caller that notices when it is asked whether it still waits, which happens in each turn of a wait."""

    def __init__(self, patience: float = PATIENT) -> None:
        object.__setattr__(self, "_asked", threading.Semaphore(0))
        object.__setattr__(self, "still", True)
        super().__init__(patience, self._answer)

    def _answer(self) -> bool:
        self._asked.release()  # type: ignore[attr-defined]
        return bool(self.still)  # type: ignore[attr-defined]

    def asked(self, times: int) -> None:
        for _ in range(times):
            assert self._asked.acquire(timeout=20)  # type: ignore[attr-defined]

    def leave(self) -> None:
        object.__setattr__(self, "still", False)


@pytest.fixture
def patient(host: Host) -> Host:
    host.close()
    host.patience, host.observer = PATIENT, Waits()
    host.restart()
    return host


def in_background(work: Callable[[], object]) -> Callable[[], object]:
    """Runs `work` in a thread; the returned function waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(30)


def test_a_prepare_waits_for_the_unprepare_of_the_holder_and_then_succeeds_at_once(patient: Host, client: Client) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.prepare(second, caller))
    caller.asked(2)  # once before it takes, then while it waits
    assert patient.held() == {first.uid: ["toy-0"]}, "nobody takes a device from its holder"
    assert patient.unprepare(first) is None
    assert devices(prepared()) == ["toy-0"]  # type: ignore[arg-type]
    assert patient.observer.outcomes == ["freed"]  # type: ignore[attr-defined]


def test_what_the_wait_is_for_may_come_from_another_instance(patient: Host, client: Client) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.prepare(second, caller))
    caller.asked(2)
    with closing(Database(patient.directory / "state.db")) as other:
        Journal(other).release([first.uid])
    assert devices(prepared()) == ["toy-0"]  # type: ignore[arg-type]


def test_a_holder_that_gets_other_devices_before_the_wait_begins_is_noticed(patient: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    patient.prepare(first)
    wait = patient.keeper.guard.wait

    def late(*given: Any) -> bool:
        anew = DeviceAllocationResult(results=[result("toy-1")])
        patient.keeper.holdings.take([patient.keeper._reader.plan(first, anew)], 30)
        return wait(*given)

    monkeypatch.setattr(patient.keeper.guard, "wait", late)
    assert devices(patient.prepare(second, Caller(patience=5))) == ["toy-0"]


def test_the_other_claims_of_the_call_are_prepared_and_keep_their_devices_while_one_waits(patient: Host, client: Client) -> None:
    first, second, third = (allocated(client, name, result(device)) for name, device in (("a", "toy-0"), ("b", "toy-0"), ("c", "toy-1")))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.keeper.prepare([second, third], caller))
    caller.asked(3)  # for each of the two before they are taken, then while one waits
    assert patient.held() == {first.uid: ["toy-0"], third.uid: ["toy-1"]}
    patient.unprepare(first)
    assert {uid: devices(one) for uid, one in prepared().items()} == {second.uid: ["toy-0"], third.uid: ["toy-1"]}  # type: ignore[attr-defined]


def test_waiting_blocks_neither_other_claims_nor_an_unprepare_of_the_waiting_one(patient: Host, client: Client) -> None:
    first, second, third = (allocated(client, name, result(device)) for name, device in (("a", "toy-0"), ("b", "toy-0"), ("c", "toy-1")))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.prepare(second, caller))
    caller.asked(2)
    assert devices(patient.prepare(third)) == ["toy-1"]
    assert patient.unprepare(second) is None
    error = prepared()
    assert isinstance(error, ClaimRetryError)
    assert patient.observer.outcomes == ["given_up"]  # type: ignore[attr-defined]
    patient.unprepare(first)
    assert patient.held() == {third.uid: ["toy-1"]}, "a prepare that was overtaken takes nothing any more"


def test_a_caller_that_has_gone_ends_the_wait(patient: Host, client: Client) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.prepare(second, caller))
    caller.asked(2)
    caller.leave()
    assert isinstance(prepared(), ClaimRetryError)


def test_a_caller_that_has_gone_ends_nothing_for_one_who_has_joined(patient: Host, client: Client, boarded: threading.Semaphore) -> None:
    first, second = allocated(client, "first", result("toy-0")), allocated(client, "second", result("toy-0"))
    patient.prepare(first)
    before, after = Asked(), Asked()  # the kubelet restarts in between
    gone = in_background(lambda: patient.prepare(second, before))
    before.asked(2)
    joined = in_background(lambda: patient.prepare(second, after))
    for _ in range(3):
        assert boarded.acquire(timeout=10)
    before.leave()
    after.asked(1)
    assert patient.unprepare(first) is None
    assert devices(joined()) == devices(gone()) == ["toy-0"]  # type: ignore[arg-type]


def test_a_claim_that_is_prepared_does_not_wait_for_the_others_of_a_call_of_another_pod(patient: Host, client: Client) -> None:
    first, second, shared = (allocated(client, name, result(device)) for name, device in (("a", "toy-0"), ("b", "toy-0"), ("c", "toy-1")))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.keeper.prepare([second, shared], caller))
    caller.asked(3)
    assert devices(patient.prepare(shared, Caller(patience=5))) == ["toy-1"]
    patient.unprepare(first)
    assert {uid: devices(one) for uid, one in prepared().items()} == {second.uid: ["toy-0"], shared.uid: ["toy-1"]}  # type: ignore[attr-defined]


def test_the_holders_of_all_claims_of_a_call_are_asked_for_at_once(
    host: Host, client: Client, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders, claims = ([allocated(client, f"{name}{number}", result(f"toy-{number}")) for number in range(8)] for name in ("held", "wants"))
    host.keeper.prepare(holders)
    monkeypatch.setattr(guard, "ASK_DEADLINE", 0.5)
    slow = api.hang("GET", "resourceclaims/held", times=None)
    began = time.monotonic()
    errors = host.keeper.prepare(claims)
    assert time.monotonic() - began < 8 * 0.5
    assert len(errors) == 8
    assert all("Its pods are not known" in str(error) for error in errors.values())
    slow.release()


def test_a_call_that_was_given_up_while_the_claim_was_read_prepares_nothing(host: Host, client: Client) -> None:
    claim = allocated(client, "c", result("toy-0"))
    error = host.prepare(claim, Caller(waits=lambda: False))
    assert isinstance(error, ClaimRetryError)
    assert "the kubelet has given up this call; nothing was prepared" in str(error)
    assert host.held() == {}


def test_too_many_who_wait_are_refused_at_once(patient: Host, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (allocated(client, name, result("toy-0")) for name in ("a", "b", "c"))
    monkeypatch.setattr(patient.keeper.guard, "_places", threading.Semaphore(1))
    patient.prepare(first)
    caller = Asked()
    prepared = in_background(lambda: patient.prepare(second, caller))
    caller.asked(2)
    assert isinstance(patient.prepare(third), ClaimRetryError)
    assert patient.observer.outcomes == ["crowded"]  # type: ignore[attr-defined]
    patient.unprepare(first)
    assert devices(prepared()) == ["toy-0"]  # type: ignore[arg-type]
    assert guard.MOST_WAITING < 48, "or no worker is left"


def pod(name: str) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


def delete(client: Client, claim: ClaimKey, *, then: Sequence[DeviceRequestAllocationResult] = ()) -> None:
    client.delete(RESOURCE_CLAIMS, claim.name, claim.namespace)
    if then:
        allocated(client, claim.name, *then)


@pytest.mark.parametrize(
    ("then", "text"),
    [
        pytest.param(lambda client, api, claim: None, "It is reserved for: pod default/train-0, pod default/train-1", id="pods"),
        pytest.param(lambda client, api, claim: delete(client, claim), "That claim is deleted, but a container of it may still run", id="gone"),
        pytest.param(lambda client, api, claim: delete(client, claim, then=[result("toy-3")]), "That claim is deleted", id="replaced"),
        pytest.param(
            lambda client, api, claim: api.fail("GET", "resourceclaims/first", status=403, reason="Forbidden", message="no rights"),
            "Its pods are not known: .*no rights",
            id="no answer",
        ),
    ],
)
def test_a_wait_in_vain_names_the_holder_and_its_pods(host: Host, client: Client, api: ApiServer, then, text: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    first = allocated(client, "first", result("toy-0"), reserved_for=[pod("train-0"), pod("train-1")])
    second = allocated(client, "second", result("toy-0"))
    host.prepare(first)
    then(client, api, first)
    error = host.prepare(second)
    assert isinstance(error, ClaimRetryError)
    assert f"toy-0 (TOY-toy-0) is still prepared for claim default/first (UID {first.uid})" in str(error)
    with pytest.raises(ClaimRetryError, match=text):
        raise error
    assert host.held() == {first.uid: ["toy-0"]}


@pytest.fixture
def boarded(host: Host, monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released by each call once it has joined another one or has not."""
    calls = threading.Semaphore(0)
    board = host.keeper._flights.board

    def count(uids: Iterable[str], waits: Callable[[], bool]) -> object:
        found = board(uids, waits)
        calls.release()
        return found

    monkeypatch.setattr(host.keeper._flights, "board", count)
    return calls


def test_a_repeated_call_joins_the_one_that_runs(
    host: Host, client: Client, api: ApiServer, boarded: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Claims()
    monkeypatch.setattr(host.keeper, "_observer", seen)
    claim = allocated(client, "c", result("toy-0"))
    slow = api.hang("GET", "resourceclaims")
    first = in_background(lambda: host.prepare(claim))
    assert slow.hit.wait(10)
    second = in_background(lambda: host.prepare(claim))
    for _ in range(2):
        assert boarded.acquire(timeout=10)
    slow.release()
    outcome = first()
    assert not isinstance(outcome, DraError)
    assert second() == outcome
    assert len(api.requests("GET", "resourceclaims/c")) == 1
    assert sorted(seen.outcomes) == [("prepare", "done"), ("prepare", "joined")]


def test_a_call_that_joins_gets_the_error_as_well_and_waits_no_longer_than_it_may(host: Host, client: Client, api: ApiServer) -> None:
    claim = allocated(client, "c", result("nope"))
    slow = api.hang("GET", "resourceclaims")
    first = in_background(lambda: host.prepare(claim))
    assert slow.hit.wait(10)
    impatient = host.prepare(claim, Caller(patience=0.05))
    assert isinstance(impatient, ClaimRetryError)
    assert "another call is still preparing it" in str(impatient)
    joined = in_background(lambda: host.prepare(claim))
    slow.release()
    assert "unknown device" in str(first())
    assert "unknown device" in str(joined())


def test_a_prepare_after_an_unprepare_does_not_join_the_one_before(host: Host, client: Client, api: ApiServer) -> None:
    claim = allocated(client, "c", result("toy-0"))
    slow = api.hang("GET", "resourceclaims")
    overtaken = in_background(lambda: host.prepare(claim))
    assert slow.hit.wait(10)
    assert host.unprepare(claim) is None, "an unprepare does not wait for the API server"
    assert devices(host.prepare(claim)) == ["toy-0"]
    slow.release()
    error = overtaken()
    assert isinstance(error, ClaimRetryError)
    assert "was unprepared while it was being prepared" in str(error)
    assert host.held() == {claim.uid: ["toy-0"]}


def test_a_bug_in_the_call_is_told_to_those_who_joined(
    host: Host, client: Client, api: ApiServer, boarded: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = allocated(client, "c", result("toy-0"))
    slow = api.hang("GET", "resourceclaims")

    def broken(batch: object, patience: float) -> dict[str, object]:
        raise ZeroDivisionError

    monkeypatch.setattr(host.keeper.holdings, "take", broken)

    def fails() -> str:
        with pytest.raises(ZeroDivisionError):
            host.prepare(claim)
        return "failed"

    first = in_background(fails)
    assert slow.hit.wait(10)
    second = in_background(lambda: host.prepare(claim))
    for _ in range(2):
        assert boarded.acquire(timeout=10)
    slow.release()
    assert first() == "failed"
    assert "the call that prepared it failed" in str(second())
    assert host.keeper._flights._flying == {}


def test_many_prepares_and_unprepares_of_few_claims_from_many_threads_end_as_the_last_ones_said(patient: Host, client: Client) -> None:
    claims = [allocated(client, f"c{number}", result(f"toy-{number % 2}")) for number in range(4)]
    patient.keeper._guard_patience = 0.5

    def work(seed: int) -> None:
        for step in range(12):
            claim = claims[(seed * 7 + step * 3) % 4]
            if (seed + step) % 3:
                patient.prepare(claim)
            else:
                assert patient.unprepare(claim) is None

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    held = [device for entry in patient.journal.entries() for device in entry.devices]
    assert len({device.uuid for device in held}) == len(held)
    assert patient.specs() == set(patient.held())
    for claim in claims:
        assert patient.unprepare(claim) is None
    assert patient.held() == {}
    assert patient.specs() == set()
