"""The part of a plugin that keeps claims, on a node of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dra_driver.daemon.clock import Clock
from dra_driver.daemon.turns import Turns
from dra_driver.errors import DraError
from dra_driver.k8s.client import Client
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.claims import Caller, ClaimKeeper, Prepared
from dra_driver.kubelet.journal import ClaimKey, Journal
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.quarantine import open_journal
from dra_driver.kubelet.rebuild import Rebuild
from tests.kubelet.toy import ToyDriver


class Host:
    """One node's claim keeper with all its parts; `restart` is a new process on the same directories."""

    def __init__(
        self, client: Client, directory: Path, driver: ToyDriver | None = None, *, restore: bool = True, pod_resources: Path | None = None
    ) -> None:
        self.client = client
        self.directory = directory
        self.driver = driver or ToyDriver()
        self.driver.settings_directory = directory / "settings"
        self.driver.settings_directory.mkdir(exist_ok=True)
        self.patience = 0.0  # for devices that another claim holds
        self.boot_id = "boot-1"
        self.clock: Clock | None = None
        self.observer = Observer()
        self.alone = True
        self.pod_resources = pod_resources
        self.pause: Callable[[float], bool] = lambda seconds: True  # a start does not wait for the API server
        self.restart(restore=restore)

    def restart(self, *, restore: bool = True) -> None:
        self.database = open_journal(self.directory / "state.db", alone=lambda: self.alone, observer=self.observer)
        self.journal = Journal(self.database, boot_id=self.boot_id, related=self.driver.related)
        self.turns = Turns(self.directory / "claims.lock")
        self.cdi = CdiFiles(self.directory / "cdi", driver=self.driver.name, kind=self.driver.cdi_kind)
        self.keeper = ClaimKeeper(
            self.driver,
            self.client,
            self.journal,
            self.cdi,
            turns=self.turns,
            guard_patience=self.patience,
            clock=self.clock,
            observer=self.observer,
        )
        self.rebuild = Rebuild(self.driver, self.client, self.journal, self.cdi, self.turns, pod_resources=self.pod_resources, observer=self.observer)
        try:
            self.rebuild.run(self.pause)
        except BaseException:
            self.close()
            raise
        if restore:
            self.keeper.restore()

    def close(self) -> None:
        self.turns.close()
        self.database.close()

    def prepare(self, claim: ClaimKey, caller: Caller | None = None) -> Prepared | DraError:
        return self.keeper.prepare([claim], caller or Caller())[claim.uid]

    def unprepare(self, claim: ClaimKey) -> DraError | None:
        return self.keeper.unprepare([claim])[claim.uid]

    def held(self) -> dict[str, list[str]]:
        return {entry.claim.uid: [held.device for held in entry.devices] for entry in self.journal.entries()}

    def specs(self) -> set[str]:
        return {entry.claim.uid for entry in self.cdi.entries()}

    def settings(self) -> dict[str, str]:
        """What is not as after a fresh boot."""
        found = {path.name: path.read_text() for path in self.driver.settings_directory.iterdir()}
        return {subject: value for subject, value in found.items() if value != "default"}


def devices(outcome: Prepared | DraError) -> list[str]:
    assert not isinstance(outcome, DraError), outcome
    return [one.device for one in outcome]
