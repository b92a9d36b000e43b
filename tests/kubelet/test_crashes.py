"""A crash at every step of preparing, unpreparing and starting: what the next process and the kubelet's next call make of it.

After each crash two things may come, and both must end well: the kubelet asks again, or it unprepares the claim. Never is a device lost, given to two
claims, or a setting of the host left behind.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.errors import DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, AllocationResult, DeviceAllocationResult
from dra_driver.kubelet.journal import ClaimKey
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet import crashing
from tests.kubelet.crashing import Scenario
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import allocated, result

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.kubelet.crashing"])

SPEC = ["write cdi", "rename cdi"]
# Written, not there, made with the directory above it, written again.
TOLD = ["write metadata", *2 * ["mkdir metadata"], "write metadata", "rename metadata"]
BACK = ["commit", "write settings", "write settings", "remove cdi", "commit"]
STEPS = {
    # what is done: the steps that it takes
    "prepare a plain device": ["commit", *SPEC, "answer"],
    "prepare a device with settings": ["commit", "write settings", "write settings", *SPEC, "commit", "answer"],
    "prepare a telling device": ["commit", *TOLD, *SPEC, "answer"],
    "prepare two claims": ["commit", *SPEC, "write settings", *SPEC, "commit", "answer"],
    "prepare again": ["write settings", "write settings", "answer"],
    "prepare under another allocation": [*BACK, "commit", "write settings", *SPEC, "commit", "answer"],
    "unprepare a plain device": ["remove cdi", "commit", "answer"],
    "unprepare a telling device": ["remove cdi", "remove metadata", "rmdir metadata", "commit", "answer"],
    "unprepare a device with settings": [*BACK, "answer"],
    "unprepare two claims": ["commit", "remove cdi", "write settings", "remove cdi", "commit", "commit", "answer"],
    "start with a half-prepared claim": [*BACK[1:], "answer"],
    "start without the CDI specs": [*SPEC, *SPEC, "answer"],
}


class Bed:
    """A node that dies, in one directory, with an API server that does not."""

    def __init__(self, what: str, client: Client, api: ApiServer, directory: Path) -> None:
        self.client, self.connection, self.directory = client, api.connection, directory
        (directory / "cdi").mkdir(parents=True)
        self.plain = allocated(client, "plain", result("toy-0"))
        self.set = allocated(client, "set", result("toy-1"))
        self.shared = allocated(client, "shared", result("toy-2"))
        self.telling = allocated(client, "telling", result("toy-4"))
        self.operation = {"p": "prepare", "u": "unprepare", "s": "restore"}[what[0]]
        self.claims: tuple[ClaimKey, ...] = {
            "plain device": (self.plain,),
            "telling device": (self.telling,),
            "two claims": (self.plain, self.shared),
            "the CDI specs": (self.plain, self.set),
        }.get(next((end for end in ("plain device", "telling device", "two claims", "the CDI specs") if what.endswith(end)), ""), (self.set,))
        if what in {"prepare again", "prepare under another allocation", "start without the CDI specs"} or what.startswith("unprepare"):
            with self.host() as host:
                for claim in self.claims:
                    assert devices(host.prepare(claim))
        if what == "prepare under another allocation":
            reallocate(client, self.set, "toy-3")
        if what == "start without the CDI specs":
            for spec in (directory / "cdi").iterdir():
                spec.unlink()
        if what == "start with a half-prepared claim":
            self.run(Scenario("prepare", self.claims, directory, self.connection, die_at=STEPS["prepare a device with settings"].index("rename cdi")))

    @contextmanager
    def host(self, directory: Path | None = None) -> Iterator[Host]:
        """The next process: its start is over."""
        one = Host(self.client, directory or self.directory, crashing.driver())
        try:
            yield one
        finally:
            one.close()

    def run(self, scenario: Scenario) -> tuple[list[str], dict[str, str]] | None:
        """What a process tells that does this; None when it died."""
        ours, theirs = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=crashing.run, args=(scenario, theirs.send))
        child.start()
        theirs.close()
        try:
            told: tuple[list[str], dict[str, str]] | None = ours.recv()
        except EOFError:
            told = None
        child.join(30)
        assert child.exitcode == (-9 if told is None else 0)
        return told

    def die(self, step: int | None = None) -> tuple[list[str], dict[str, str]] | None:
        return self.run(Scenario(self.operation, self.claims, self.directory, self.connection, die_at=step))


def reallocate(client: Client, claim: ClaimKey, device: str) -> None:
    found = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
    found.status.allocation = None
    found = client.replace(RESOURCE_CLAIMS, found, subresource="status")
    found.status.allocation = AllocationResult(devices=DeviceAllocationResult(results=[result(device)]))
    client.replace(RESOURCE_CLAIMS, found, subresource="status")


def check_consistent(host: Host) -> None:
    """What the journal, the CDI specs and the host's settings say is the same."""
    entries = host.journal.entries()
    held = [device.uuid for entry in entries for device in entry.devices]
    assert len(held) == len(set(held)), "never a device for two claims"
    assert host.specs() == {entry.claim.uid for entry in entries}
    told = {entry.claim.uid for entry in entries for device in entry.devices if device.device == "toy-4"}
    assert {path.parent.name for path in (host.directory / "cdi").glob("*-metadata/*/*.json")} == told
    wanted = {change.subject: change.value for entry in entries for device in entry.devices for change in crashing.WANTS.get(device.device, ())}
    assert host.settings() == wanted, "never a leaked change of the host"
    assert all(entry.prepared for entry in entries)


def prepares_again(bed: Bed, host: Host) -> None:
    for claim in bed.claims:
        assert devices(host.prepare(claim))
    check_consistent(host)
    assert set(host.held()) == {claim.uid for claim in bed.claims}


def unprepares(bed: Bed, host: Host) -> None:
    for claim in bed.claims:
        assert host.unprepare(claim) is None
    check_consistent(host)
    assert host.held() == {}
    assert host.settings() == {}
    for number in range(4):  # no device is lost
        other = allocated(bed.client, f"other-{number}", result(f"toy-{number}"))
        assert devices(host.prepare(other))
        assert host.unprepare(other) is None


@pytest.mark.parametrize("what", STEPS)
def test_the_steps_are_those_that_have_a_crash_test(what: str, client: Client, api: ApiServer, tmp_path: Path) -> None:
    bed = Bed(what, client, api, tmp_path)
    assert bed.die() == (STEPS[what], {})


@pytest.mark.parametrize(("what", "step"), [(what, step) for what, steps in STEPS.items() for step in range(len(steps))])
def test_a_crash_before_a_step_is_made_good(what: str, step: int, client: Client, api: ApiServer, tmp_path: Path) -> None:
    bed = Bed(what, client, api, tmp_path / "node")
    assert bed.die(step) is None
    for number, then in enumerate((prepares_again, unprepares)):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(bed.directory, copy)
        with bed.host(copy) as host:
            check_consistent(host)
            then(bed, host)


def test_a_crash_during_the_start_after_a_crash_is_made_good_too(client: Client, api: ApiServer, tmp_path: Path) -> None:
    what = "start with a half-prepared claim"
    bed = Bed(what, client, api, tmp_path / "node")
    for step in range(len(STEPS[what])):
        bed.run(replace(Scenario("restore", (), bed.directory, bed.connection), die_at=step))
    with bed.host() as host:
        check_consistent(host)
        unprepares(bed, host)


def test_a_claim_that_another_holder_waits_for_is_not_given_away_by_a_crash(client: Client, api: ApiServer, tmp_path: Path) -> None:
    bed = Bed("unprepare a plain device", client, api, tmp_path / "node")
    other = allocated(client, "other", result("toy-0"))
    for step in range(len(STEPS["unprepare a plain device"]) - 1):
        assert bed.die(step) is None
        with bed.host() as host:
            assert isinstance(host.prepare(other), DraError), "the kubelet has no answer yet"
