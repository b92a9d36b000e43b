"""Preparing and unpreparing claims: the way of one call of the kubelet.

Prepare: join a running prepare of the same claim, or read the claim → wait for the claim's turn → take (`holdings`) → answer. A device that another
claim still holds is waited for (`guard`), without holding anything meanwhile. Unprepare needs nothing but the UID and the journal, and overtakes a
prepare of its claim that has not taken anything yet. What goes wrong with one claim is that claim's answer; the others of the call go on. Repeating
either is safe at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.turns import Turns
from dra_driver.errors import ClaimRetryError, DeviceHeldError, DraError
from dra_driver.k8s.client import Client
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.flights import Flight, Flights
from dra_driver.kubelet.guard import Guard
from dra_driver.kubelet.holdings import Holdings, Prepared, PreparedDevice
from dra_driver.kubelet.journal import ClaimKey, Entry, Journal
from dra_driver.kubelet.observer import Observer
from dra_driver.kubelet.reading import ClaimReader, Planned

__all__ = ["Caller", "ClaimKeeper", "Prepared", "PreparedDevice"]

log = logging.getLogger(__name__)

PATIENCE = 40.0  # seconds for a call; the kubelet gives it 45
READ_DEADLINE = 20.0  # of them for reading the claims
ASIDE = 5.0  # seconds that work for which nobody waits gives to a call for the same claim
GUARD_PATIENCE = 40.0  # of them for a device that another claim holds: a container gets 30 s to end by default


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Caller:
    """Who waits for the answer: for how many seconds, and whether it still does."""

    patience: float = PATIENCE
    waits: Callable[[], bool] = _always


ANYBODY = Caller()


class ClaimKeeper:
    """Keeps the claims of one driver on one node. Safe for concurrent calls; what changes one claim is done in the order of the calls.

    `turns` is shared by all instances on the node.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        journal: Journal,
        cdi: CdiFiles,
        *,
        turns: Turns | None = None,
        guard_patience: float = GUARD_PATIENCE,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._observer = observer or Observer()
        self._journal = journal
        self._cdi = cdi
        self._turns = turns or Turns()
        self._guard_patience = guard_patience
        self._flights: Flights[Prepared | DraError] = Flights()
        self._reader = ClaimReader(driver, client, self._clock)
        self.guard = Guard(journal, client, self._clock, self._observer)
        self.holdings = Holdings(driver, journal, cdi, self._turns, self._reader)

    def prepare(self, claims: Sequence[ClaimKey], caller: Caller = ANYBODY) -> dict[str, Prepared | DraError]:
        """For each claim, by UID, its devices or why it could not be prepared. Bounded in time: below the kubelet's deadline."""
        end = self._clock.monotonic() + min(PATIENCE, caller.patience)
        flights, joined = self._flights.board((claim.uid for claim in claims), caller.waits)
        outcomes: dict[str, Prepared | DraError] = {}
        try:
            self._prepare([claim for claim in claims if claim.uid in flights], flights, outcomes, end)
        finally:
            for claim in claims:
                if claim.uid in flights:
                    failed = ClaimRetryError(f"claim {claim}: the call that prepared it failed")
                    self._flights.land(claim.uid, flights[claim.uid], outcomes.get(claim.uid, failed))
        for claim in claims:
            if claim.uid in joined:
                landed = joined[claim.uid].wait(end - self._clock.monotonic())
                outcomes[claim.uid] = landed if landed is not None else ClaimRetryError(f"claim {claim}: another call is still preparing it")
            self._report("prepare", claim, outcomes[claim.uid], joined=claim.uid in joined)
        return outcomes

    def unprepare(self, claims: Sequence[ClaimKey]) -> dict[str, DraError | None]:
        """For each claim, by UID, None or why it could not be unprepared. A claim that is not prepared is a success."""
        end = self._clock.monotonic() + PATIENCE
        uids = [claim.uid for claim in claims]
        with self._turns.line_up(uids) as turn:
            self._flights.overtake(uids)
            busy = turn.wait(PATIENCE)
            outcomes = self.holdings.give_back([claim for claim in claims if claim.uid not in busy], end - self._clock.monotonic())
        outcomes |= {claim.uid: _busy(claim) for claim in claims if claim.uid in busy}
        self.guard.released()
        for claim in claims:
            self._report("unprepare", claim, outcomes[claim.uid])
        return outcomes

    def release(self, entry: Entry, still_so: Callable[[], bool]) -> DraError | bool | None:
        """Gives back what nobody uses: in the claim's turn, if the entry is the same as ever and `still_so`. False if it is not."""
        uid = entry.claim.uid
        with self._turns.hold([uid], ASIDE) as busy:
            if busy:
                return _busy(entry.claim)
            found = self._journal.find(uid)
            if found is None or (found.revision, found.prepared) != (entry.revision, entry.prepared) or not still_so():
                return False
            outcome = self.holdings.give_back([entry.claim], ASIDE)[uid]
        self.guard.released()
        return outcome

    def restore(self) -> None:
        """At start: takes back what a process that died was in the middle of, and repairs the CDI files of all prepared claims.

        The kubelet does not ask again for pods that run. What cannot be repaired now is logged; it stops nothing.
        """
        entries = self._journal.entries()
        for entry in entries:
            if not entry.prepared:
                self._roll_back(entry)
        earlier = sum(not self._journal.is_of_this_boot(entry) for entry in entries)
        if earlier:
            log.info(
                "claims were prepared in an earlier boot, or in one that is not known: the next prepare does all again", extra={"claims": earlier}
            )
        self.repair()

    def repair(self) -> None:
        """Writes missing and outdated CDI specs of prepared claims; to be called again whenever they may have become so."""
        written = 0
        for listed in self._journal.entries():
            with self._turns.hold([listed.claim.uid], ASIDE) as busy:
                entry = None if busy else self._journal.find(listed.claim.uid)
                if entry is None or not entry.prepared:
                    continue  # or whoever has the claim's turn writes the spec, or removes it
                outcome = attempt(entry.claim, self.holdings.repair, entry)
            if isinstance(outcome, DraError):
                log.error("CDI spec of a prepared claim cannot be repaired", extra={"claim": str(entry.claim), "error": str(outcome)})
            elif outcome:
                written += 1
                log.warning("CDI spec of a prepared claim was missing or outdated and is written again", extra={"claim": str(entry.claim)})
        if written:
            self._observer.cdi_repaired(written)

    def _prepare(
        self,
        claims: Sequence[ClaimKey],
        flights: Mapping[str, Flight[Prepared | DraError]],
        outcomes: dict[str, Prepared | DraError],
        end: float,
    ) -> None:
        began = self._clock.monotonic()
        wanted = list(claims)
        while wanted:
            read = self._reader.read(wanted, min(end, self._clock.monotonic() + READ_DEADLINE))
            outcomes |= {claim.uid: one for claim, one in read.items() if isinstance(one, DraError)}
            planned = [one for one in read.values() if isinstance(one, Planned)]
            uids = [one.entry.claim.uid for one in planned]
            with self._turns.line_up(uids) as turn:
                busy = turn.wait(end - self._clock.monotonic())
                late = {uid for uid in uids if flights[uid].overtaken or not flights[uid].awaited()}
                ours = [one for one in planned if one.entry.claim.uid not in late | busy]
                outcomes |= self.holdings.take(ours, end - self._clock.monotonic())
            outcomes |= {claim.uid: _busy(claim) for claim in wanted if claim.uid in busy}
            outcomes |= {claim.uid: _unwanted(claim, flights[claim.uid]) for claim in wanted if claim.uid in late}
            held = {claim: error for claim in wanted if isinstance(error := outcomes[claim.uid], DeviceHeldError)}
            for claim in wanted:
                if claim not in held:  # another call that joined it need not wait for the rest of this one
                    self._flights.land(claim.uid, flights[claim.uid], outcomes[claim.uid])
            wanted = list(held)

            def given_up(waiting: Sequence[Flight[Prepared | DraError]] = [flights[claim.uid] for claim in wanted]) -> bool:
                return any(one.overtaken for one in waiting) or not any(one.awaited() for one in waiting)

            until = min(end, began + self._guard_patience)
            if held and not self.guard.wait(held.values(), until, given_up):
                explained = self.guard.explain(list(held.values()), self._clock.monotonic() - began)
                outcomes |= {claim.uid: error for claim, error in zip(held, explained, strict=True)}
                return

    def _roll_back(self, entry: Entry) -> None:
        """The kubelet got no answer for this claim, and will ask again if it still wants it."""
        outcome = self.release(entry, lambda: True)
        if isinstance(outcome, DraError):
            log.error("half-prepared claim cannot be taken back, its devices stay reserved", extra={"claim": str(entry.claim), "error": str(outcome)})
        elif outcome is None:
            log.warning("half-prepared claim is taken back", extra={"claim": str(entry.claim)})
            self._observer.journal("rolled_back")
        # Else a living instance was at it, and has ended it by now.

    def _report(self, operation: str, claim: ClaimKey, outcome: Prepared | DraError | None, *, joined: bool = False) -> None:
        about = {"operation": operation, "claim": f"{claim.namespace}/{claim.name}", "uid": claim.uid}
        if isinstance(outcome, DraError):
            log.warning("claim failed", extra=about | {"error": str(outcome)})
            result = "retry" if outcome.retryable else "refused"
        else:
            log.info("claim done", extra=about | {"devices": [one.device for one in outcome or ()]})
            result = "done"
        self._observer.claim(operation, "joined" if joined else result)


def _busy(claim: ClaimKey) -> ClaimRetryError:
    return ClaimRetryError(f"claim {claim}: an earlier call for it, or another instance of the driver, is still at work on it, or hangs")


def _unwanted(claim: ClaimKey, flight: Flight[Prepared | DraError]) -> ClaimRetryError:
    if flight.overtaken:
        return ClaimRetryError(f"claim {claim}: was unprepared while it was being prepared; nothing was prepared")
    return ClaimRetryError(f"claim {claim}: the kubelet has given up this call; nothing was prepared")
