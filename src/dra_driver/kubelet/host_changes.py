"""Settings of the host that claims need: noted before they are made, taken back when the last claim that needs them goes.

What was there before is in the journal before anything changes, so that a process that dies in the middle leaves nothing that the next cannot take
back. Claims that want the same of a setting share it: all of them remember what was there before the first came, and the last one to go restores it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from dra_driver.daemon.turns import Turns
from dra_driver.errors import ClaimError
from dra_driver.kubelet.driver import Driver, HostChange, Plan
from dra_driver.kubelet.journal import ChangeRecord, Entry, Journal


class HostChanges:
    """Makes and takes back the changes of plans. Hold `turn` of all entries concerned around each use."""

    def __init__(self, driver: Driver, journal: Journal, turns: Turns) -> None:
        self._driver = driver
        self._journal = journal
        self._turns = turns

    @contextmanager
    def turn(self, subjects: Collection[str], patience: float) -> Iterator[set[str]]:
        """One claim at a time decides about a setting; the settings that others still have after `patience` seconds are not ours to touch."""
        keys = {f"setting {subject}": subject for subject in subjects}
        if keys:
            with self._turns.hold(keys, patience) as busy:
                yield {keys[key] for key in busy}
        else:
            yield set()

    def records(self, entry: Entry, plan: Plan, earlier: Entry | None) -> tuple[ChangeRecord, ...]:
        """The plan's changes with what was there before: by this claim's earlier entry, by other claims', else as it is now.

        What the earlier entry changed and the plan no longer asks for (another version planned it) stays noted, to be taken back with the rest.
        """
        wanted = _wanted(entry, plan)
        known = self._journal.changed_by_others(Entry(entry.claim, entry.allocation, (), wanted)) if wanted else {}
        known |= {one.subject: one for one in earlier.changes} if earlier else {}
        left = tuple(one for one in earlier.changes if one.subject not in {change.subject for change in wanted}) if earlier else ()
        return left + tuple(
            ChangeRecord(one.subject, one.wanted, known[one.subject].before if one.subject in known else self._driver.read_setting(one.subject))
            for one in wanted
        )

    def make(self, entry: Entry) -> None:
        """Makes the host as the entry wants it, whatever it is now."""
        for one in entry.changes:
            self._driver.apply_setting(HostChange(one.subject, one.wanted))

    def take_back(self, entry: Entry) -> None:
        """Restores what was there before, but for what other claims need as well."""
        needed = self._journal.changed_by_others(entry)
        for one in reversed(entry.changes):
            if one.subject not in needed:
                self._driver.apply_setting(HostChange(one.subject, one.before))


def _wanted(entry: Entry, plan: Plan) -> tuple[ChangeRecord, ...]:
    """Each setting once; several devices of the claim may need it. ClaimError when they do not need the same of it."""
    wanted: dict[str, ChangeRecord] = {}
    for one in plan.changes:
        record = ChangeRecord(one.subject, one.value, "")
        if (other := wanted.setdefault(one.subject, record)) != record:
            raise ClaimError(
                f"claim {entry.claim}: its devices need {one.subject} to be {other.wanted} and {one.value} at the same time; "
                "configure them alike, or ask for one of them only"
            )
    return tuple(wanted.values())
