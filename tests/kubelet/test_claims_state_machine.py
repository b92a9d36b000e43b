"""Any sequence of calls, restarts, re-allocations and losses, against a model of what must be held."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dra_driver.errors import DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, AllocationResult, DeviceAllocationResult
from dra_driver.kubelet.journal import ClaimKey
from dra_driver.sandbox.apiserver import ApiServer
from tests.kubelet import crashing
from tests.kubelet.host import Host, devices
from tests.kubelet.toy import allocated, result

CLAIMS = st.integers(0, 3)
DEVICES = st.integers(0, 4)  # toy-0 and toy-4 need no setting, 1 and 2 share one, 3 needs another value of it


class Claims(RuleBasedStateMachine):
    """`held` is the model: what each claim was prepared with last, until it is unprepared."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="dra"))
        self.api = ApiServer()
        self.client = Client(self.api.connection, "test")
        self.host = Host(self.client, self.directory, crashing.driver())
        self.claims: list[ClaimKey] = []
        self.devices: list[int] = []
        self.held: dict[str, int] = {}

    @initialize(chosen=st.lists(DEVICES, min_size=4, max_size=4))
    def claims_exist(self, chosen: list[int]) -> None:
        self.devices = chosen
        self.claims = [allocated(self.client, f"c{number}", result(f"toy-{device}")) for number, device in enumerate(chosen)]

    @rule(numbers=st.lists(CLAIMS, min_size=1, max_size=3, unique=True))
    def prepare(self, numbers: list[int]) -> None:
        wanted = {self.claims[number].uid: self.devices[number] for number in numbers}
        before = dict(self.held)
        outcomes = self.host.keeper.prepare([self.claims[number] for number in numbers])
        for uid, outcome in outcomes.items():
            if not isinstance(outcome, DraError):
                assert devices(outcome) == [f"toy-{wanted[uid]}"]
                self.held[uid] = wanted[uid]
            elif self.held.get(uid) not in {None, wanted[uid]}:
                del self.held[uid]  # what it held under its old allocation was given back
        for uid, outcome in outcomes.items():
            if isinstance(outcome, DraError):
                assert self.in_the_way(uid, wanted[uid], before) or self.in_the_way(uid, wanted[uid], self.held), outcome

    def in_the_way(self, uid: str, device: int, held: dict[str, int]) -> bool:
        """Whether another claim has the device, or needs the setting to be otherwise."""
        others = {other for holder, other in held.items() if holder != uid}
        return device in others or (device == 3 and bool(others & {1, 2})) or (device in {1, 2} and 3 in others)

    @rule(numbers=st.lists(CLAIMS, min_size=1, max_size=3, unique=True))
    def unprepare(self, numbers: list[int]) -> None:
        claims = [self.claims[number] for number in numbers]
        assert set(self.host.keeper.unprepare(claims).values()) == {None}
        for claim in claims:
            self.held.pop(claim.uid, None)

    @rule(number=CLAIMS, device=DEVICES)
    def allocate_anew(self, number: int, device: int) -> None:
        claim = self.claims[number]
        found = self.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        found.status.allocation = None
        found = self.client.replace(RESOURCE_CLAIMS, found, subresource="status")
        found.status.allocation = AllocationResult(devices=DeviceAllocationResult(results=[result(f"toy-{device}")]))
        self.client.replace(RESOURCE_CLAIMS, found, subresource="status")
        self.devices[number] = device

    @rule()
    def restart(self) -> None:
        self.host.close()
        self.host.restart()

    @rule(number=CLAIMS)
    def lose_a_spec(self, number: int) -> None:
        self.host.cdi.path(self.claims[number]).unlink(missing_ok=True)
        self.host.keeper.repair()

    @invariant()
    def everything_says_the_same(self) -> None:
        assert self.host.held() == {uid: [f"toy-{device}"] for uid, device in sorted(self.held.items())}
        assert self.host.specs() == set(self.held)
        changes = {change.subject: change.value for device in self.held.values() for change in crashing.WANTS.get(f"toy-{device}", ())}
        assert self.host.settings() == changes

    def teardown(self) -> None:
        self.host.close()
        self.client.close()
        self.api.close()
        shutil.rmtree(self.directory)


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
