"""What claims hold on this host, kept together: the journal's rows, the changes of the host, the CDI spec files.

Taking: reserve in the journal → change the host → write the CDI spec. Giving back is the reverse. The journal's row is first to come and last to go,
so whatever is interrupted, the next process finds in it what is to be finished or taken back. Where only our own file changes, it is one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from dra_driver.daemon.turns import Turns
from dra_driver.errors import ClaimError, ClaimRetryError, DraError
from dra_driver.kubelet import requests
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.cdi_files import CdiFiles
from dra_driver.kubelet.driver import Driver
from dra_driver.kubelet.host_changes import HostChanges
from dra_driver.kubelet.journal import ClaimKey, Entry, Journal
from dra_driver.kubelet.reading import ClaimReader, Planned

log = logging.getLogger(__name__)


class PreparedDevice(msgspec.Struct, frozen=True):
    """What the kubelet is told about one device."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


Prepared = tuple[PreparedDevice, ...]


class Holdings:
    """Takes and gives back for claims. The caller has the claims' turn."""

    def __init__(self, driver: Driver, journal: Journal, cdi: CdiFiles, turns: Turns, reader: ClaimReader) -> None:
        self._journal = journal
        self._cdi = cdi
        self._changes = HostChanges(driver, journal, turns)
        self._reader = reader

    def take(self, batch: Sequence[Planned], patience: float) -> dict[str, Prepared | DraError]:
        """For each claim, by UID, what it holds now or why it could not have it. DeviceHeldError: another claim has a device.

        `patience` is in seconds, for settings of the host that are being changed for others.
        """
        outcomes: dict[str, Prepared | DraError] = {}
        earlier = {one.entry.claim.uid: self._journal.find(one.entry.claim.uid) for one in batch}
        ready: list[Planned] = []
        with self._changes.turn({change.subject for one in batch for change in one.plan.changes} | _subjects(earlier.values()), patience) as busy:
            for one in batch:
                entry = attempt(one.entry.claim, lambda planned: self._entry(planned, earlier[planned.entry.claim.uid], busy), one)
                if isinstance(entry, DraError):
                    outcomes[one.entry.claim.uid] = entry
                else:
                    ready.append(msgspec.structs.replace(one, entry=entry))
            outcomes |= self._journal.reserve([one.entry for one in ready if not self._journal.has(one.entry, earlier[one.entry.claim.uid])])
            for one in ready:
                claim = one.entry.claim
                if claim.uid not in outcomes:
                    outcomes[claim.uid] = attempt(claim, lambda planned: self._provide(planned, earlier[planned.entry.claim.uid]), one)
            done = [one.entry.claim.uid for one in ready if not one.entry.prepared and not isinstance(outcomes[one.entry.claim.uid], DraError)]
            self._journal.mark(done, prepared=True)
        return outcomes

    def give_back(self, claims: Sequence[ClaimKey], patience: float) -> dict[str, DraError | None]:
        """For each claim, by UID, None or why not all of it could be given back; what is left is given back when it is tried again.

        `patience` is as for `take`.
        """
        entries = {claim: self._find(claim) for claim in claims}
        with self._changes.turn(_subjects(entries.values()), patience) as busy:
            outcomes: dict[str, DraError | None] = {}
            for claim, entry in list(entries.items()):
                if touched := _subjects([entry]) & busy:
                    outcomes[claim.uid] = _busy(claim, touched)
                    del entries[claim]
            self._begin_undo(entries.values())
            for claim, entry in entries.items():
                outcomes[claim.uid] = attempt(claim, lambda key: self._undo(key, entries[key]), claim)
                if entry is not None and entry.changes and outcomes[claim.uid] is None:
                    self._journal.release([entry.claim.uid])  # at once: the next of this call may be the last one that needs the setting
            self._journal.release(
                [entry.claim.uid for claim, entry in entries.items() if entry and not entry.changes and outcomes[claim.uid] is None]
            )
        return outcomes

    def repair(self, entry: Entry) -> bool:
        """Writes the CDI spec of a prepared claim anew if it is missing or not what the host has now; returns whether that was so."""
        if not entry.claim.has_uid:
            return False
        planned = self._reader.plan(entry.claim, entry.allocation)
        _check_identity(planned, entry)
        return self._cdi.ensure(entry.claim, planned.plan, changes=entry.changes, pod_claim=entry.pod_claim)

    def _entry(self, one: Planned, earlier: Entry | None, busy: Collection[str]) -> Entry:
        """What is to stand in the journal. What the claim held under another allocation is given back before."""
        if touched := ({change.subject for change in one.plan.changes} | _subjects([earlier])) & set(busy):
            raise _busy(one.entry.claim, touched)
        if earlier is not None and earlier.allocation != one.entry.allocation:
            log.warning("claim was allocated anew without an unprepare; what it held is given back", extra={"claim": str(earlier.claim)})
            self._begin_undo([earlier])
            self._undo(earlier.claim, earlier)
            self._journal.release([earlier.claim.uid])
            earlier = None
        _check_identity(one, earlier)
        changes = self._changes.records(one.entry, one.plan, earlier)
        # A claim that was prepared before stays so, whatever comes: a container of it may run.
        return replace(one.entry, changes=changes, prepared=not changes or (earlier is not None and earlier.prepared))

    def _provide(self, one: Planned, earlier: Entry | None) -> Prepared:
        """Makes the host as the journal says."""
        claim = one.entry.claim
        try:
            self._changes.make(one.entry)
            self._cdi.ensure(claim, one.plan, changes=one.entry.changes, pod_claim=one.entry.pod_claim)
        except Exception:
            if earlier is None or earlier.allocation != one.entry.allocation:
                self._take_back(one.entry)
            raise
        return tuple(
            PreparedDevice(
                requests=(requests.base(device.result.request),),
                pool=device.result.pool,
                device=device.result.device,
                cdi_ids=cdi_ids,
                share_id=device.result.share_id,
            )
            for device, cdi_ids in zip(one.plan.devices, self._cdi.device_ids(claim, one.plan), strict=True)
        )

    def _take_back(self, entry: Entry) -> None:
        """After a failure. What cannot be taken back stays in the journal: an unprepare, or the sweep, tries again."""
        with suppress(DraError):  # a file that stays does no harm, a device that stays reserved does
            self._cdi.remove(entry.claim)
        error = attempt(entry.claim, self._changes.take_back, entry)
        if error is None:
            self._journal.release([entry.claim.uid])
        else:
            log.error("a failed prepare cannot be taken back, its devices stay reserved", extra={"claim": str(entry.claim), "error": str(error)})

    def _begin_undo(self, entries: Iterable[Entry | None]) -> None:
        """A process that finds this after a crash goes on."""
        self._journal.mark([entry.claim.uid for entry in entries if entry is not None and entry.changes and entry.prepared], prepared=False)

    def _find(self, claim: ClaimKey) -> Entry | None:
        """The claim's entry. One without a UID is meant, too: the kubelet has only one claim of a name."""
        return self._journal.find(claim.uid) or self._journal.find(ClaimKey.without_uid(claim.namespace, claim.name).uid)

    def _undo(self, claim: ClaimKey, entry: Entry | None) -> None:
        if entry is not None:
            self._changes.take_back(entry)
        if claim.has_uid:
            self._cdi.remove(claim)


def _subjects(entries: Iterable[Entry | None]) -> set[str]:
    return {change.subject for entry in entries if entry is not None for change in entry.changes}


def _busy(claim: ClaimKey, subjects: Iterable[str]) -> ClaimRetryError:
    return ClaimRetryError(f"claim {claim}: {', '.join(sorted(subjects))} is still being changed for another claim, or that hangs; try again later")


def _check_identity(one: Planned, earlier: Entry | None) -> None:
    """ClaimError when a device that the claim holds is another piece of hardware now."""
    known = [device for device in earlier.devices if device.uuid != device.by_name] if earlier else []
    held = {(device.device, device.share_id): device.uuid for device in known}
    for device in one.plan.devices:
        uuid = held.get((device.result.device, device.result.share_id or ""), device.uuid)
        if uuid != device.uuid:
            raise ClaimError(
                f"claim {one.entry.claim}: device {device.result.device} was {uuid} and is {device.uuid} now; delete the pods that use the claim"
            )
