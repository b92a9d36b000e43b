"""The journal: which claims hold which devices, durable before the kubelet gets its answer.

One row a claim, so the cost does not grow with the number of claims held. An exclusive device is reserved by a row under a UNIQUE index, which is the
exclusion between claims, threads and processes alike. Each row keeps the allocation that it was made for and the claim's namespace, name and UID, so
that every later question can be answered without the API server; and what was changed on the host, with what was there before.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from dra_driver.errors import ClaimError, ClaimRetryError, DeviceHeldError, DraError
from dra_driver.k8s.objects.resource import DeviceAllocationResult
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.database import Database

REVISIONS = random.SystemRandom()


class ClaimKey(msgspec.Struct, frozen=True):
    """A ResourceClaim as the kubelet names it. The UID is the identity; namespace and name are for the API and for people."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (UID {self.uid})"


class HeldDevice(msgspec.Struct, frozen=True):
    """A device of a claim. The claim needs it for itself alone, but for a share of it (share id) or with admin access."""

    pool: str
    device: str
    uuid: str
    share_id: str = ""
    admin: bool = False

    @property
    def exclusive(self) -> bool:
        """Whether no other claim may have it at the same time."""
        return not self.share_id and not self.admin


DEVICE_ORDER = attrgetter("device", "pool", "share_id")
"""In which an entry has its devices."""


class ChangeRecord(msgspec.Struct, frozen=True):
    """A setting of the host that is changed for a claim: from `before` to `wanted`."""

    subject: str
    wanted: str
    before: str


@dataclass(frozen=True)
class Entry:
    """A claim that holds devices.

    `changes` are in the order in which the host was changed; `prepared` is False while that goes on. `boot_id` is the boot in which it was prepared
    last. `revision` tells this row from all earlier and later ones of the claim; the journal gives it. `pod_claim` is what the pod calls a claim that
    was made from a template.
    """

    claim: ClaimKey
    allocation: DeviceAllocationResult
    devices: tuple[HeldDevice, ...]
    changes: tuple[ChangeRecord, ...] = ()
    prepared: bool = True
    pod_claim: str = ""
    boot_id: str = field(default="", compare=False)
    revision: int = field(default=0, compare=False)


def unrelated(uuid: str) -> Sequence[str]:  # noqa: ARG001
    """For drivers whose devices do not overlap."""
    return ()


class Journal:
    """The claims in `database`. `related` gives the UUIDs of the devices that overlap with one, such as the MIG devices of a GPU, and the reverse."""

    def __init__(self, database: Database, *, boot_id: str = "", related: Callable[[str], Sequence[str]] = unrelated) -> None:
        self._db = database
        self._boot_id = boot_id
        self._related = related

    def entries(self) -> list[Entry]:
        """All claims that hold devices, by UID."""
        with self._db.reading() as connection:
            return _select(connection, "", ())

    def find(self, uid: str) -> Entry | None:
        """The claim with this UID."""
        with self._db.reading() as connection:
            found = _select(connection, "WHERE uid = ?", (uid,))
        return found[0] if found else None

    def has(self, entry: Entry, row: Entry | None) -> bool:
        """Whether `row` says all that would be written for `entry` in this boot."""
        return row == entry and row is not None and row.boot_id == self._boot_id

    def count(self) -> int:
        """How many claims hold devices."""
        with self._db.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM claims").fetchone()[0])

    def reserve(self, entries: Sequence[Entry]) -> dict[str, DraError]:
        """Writes the entries in one commit, each in the place of an earlier one of its claim.

        An entry that would share a device, or a setting of the host, with another claim that must have it alone is left out and returned with the
        reason, by UID.
        """
        # The driver is asked before: in the transaction all writers would wait for it, and an error of it would be theirs.
        overlaps = {entry.claim.uid: attempt(entry.claim, self._overlaps, entry) for entry in entries}
        refused = {uid: found for uid, found in overlaps.items() if isinstance(found, DraError)}
        if len(refused) == len(entries):
            return refused

        def change(connection: sqlite3.Connection) -> dict[str, DraError]:
            reasons: dict[str, DraError] = {}
            for entry in entries:
                found = overlaps[entry.claim.uid]
                if isinstance(found, DraError):
                    continue
                reason: ClaimError | None = _held(connection, entry, found) or _set_otherwise(connection, entry)
                if reason is not None:
                    reasons[entry.claim.uid] = reason
                else:
                    self._insert(connection, entry)
            return reasons

        return refused | self._db.write(change)

    def mark(self, uids: Iterable[str], *, prepared: bool) -> None:
        """Notes that the host is changed as the claims need it, or that it is about to be changed back."""
        rows = [(prepared, uid) for uid in uids]
        if rows:
            self._db.write(lambda connection: connection.executemany("UPDATE claims SET prepared = ? WHERE uid = ?", rows))

    def release(self, uids: Iterable[str]) -> None:
        """Forgets the claims in one commit; unknown UIDs are fine."""
        rows = [(uid,) for uid in uids]
        if rows:
            self._db.write(lambda connection: connection.executemany("DELETE FROM claims WHERE uid = ?", rows))

    def changed_by_others(self, entry: Entry) -> dict[str, ChangeRecord]:
        """By subject, what other claims have changed of the settings that `entry` changes."""
        with self._db.reading() as connection:
            return {
                subject: ChangeRecord(subject, wanted, before)
                for one in entry.changes
                for subject, wanted, before in connection.execute(
                    "SELECT subject, wanted, before FROM host_changes WHERE subject = ? AND claim_uid != ?", (one.subject, entry.claim.uid)
                )
            }

    def _overlaps(self, entry: Entry) -> dict[str, tuple[str, ...]]:
        """For each UUID of the entry, it and those of the devices that overlap with it."""
        return {held.uuid: (held.uuid, *self._related(held.uuid)) for held in entry.devices if not held.admin}

    def _insert(self, connection: sqlite3.Connection, entry: Entry) -> None:
        claim = entry.claim
        connection.execute("DELETE FROM claims WHERE uid = ?", (claim.uid,))
        connection.execute(
            "INSERT INTO claims (uid, namespace, name, allocation, pod_claim, boot_id, prepared_at, revision, prepared) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                claim.uid,
                claim.namespace,
                claim.name,
                msgspec.json.encode(entry.allocation),
                entry.pod_claim,
                self._boot_id,
                time.time(),
                REVISIONS.getrandbits(62),
                entry.prepared,
            ),
        )
        connection.executemany(
            "INSERT INTO devices (claim_uid, pool, device, share_id, uuid, exclusive, admin) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(claim.uid, held.pool, held.device, held.share_id, held.uuid, held.exclusive, held.admin) for held in entry.devices],
        )
        connection.executemany(
            "INSERT INTO host_changes (claim_uid, position, subject, wanted, before) VALUES (?, ?, ?, ?, ?)",
            [(claim.uid, position, one.subject, one.wanted, one.before) for position, one in enumerate(entry.changes)],
        )


def _held(connection: sqlite3.Connection, entry: Entry, overlaps: Mapping[str, Sequence[str]]) -> DeviceHeldError | None:
    """Why a device cannot be had. Two claims may have a device, or overlapping ones, only as shares of it, which are not the same one."""
    for held in entry.devices:
        if held.admin:
            continue
        uuids = overlaps[held.uuid]
        places = ", ".join("?" * len(uuids))
        query = (
            "SELECT namespace, name, uid, revision, device, uuid FROM devices JOIN claims ON uid = claim_uid "  # noqa: S608  only question marks go in
            f"WHERE uuid IN ({places}) AND NOT admin AND (exclusive OR ? OR share_id = ?) AND claim_uid != ?"
        )
        row = connection.execute(query, (*uuids, held.exclusive, held.share_id, entry.claim.uid)).fetchone()
        if row is not None:
            holder, (revision, device, uuid) = ClaimKey(*row[:3]), row[3:]
            overlap = "" if uuid == held.uuid else f" overlaps with {device} ({uuid}), which"
            return DeviceHeldError(
                f"claim {entry.claim}: device {held.device} ({held.uuid}){overlap} is still prepared for claim {holder}; "
                "it becomes free when the kubelet unprepares that claim",
                holder=f"{holder.namespace}/{holder.name}",
                holder_uid=holder.uid,
                revision=revision,
            )
    return None


def _set_otherwise(connection: sqlite3.Connection, entry: Entry) -> ClaimError | None:
    """Why a setting of the host cannot be had: another claim needs another value of it."""
    for one in entry.changes:
        row = connection.execute(
            "SELECT namespace, name, uid, wanted FROM host_changes JOIN claims ON uid = claim_uid "
            "WHERE subject = ? AND wanted != ? AND claim_uid != ?",
            (one.subject, one.wanted, entry.claim.uid),
        ).fetchone()
        if row is not None:
            return ClaimRetryError(
                f"claim {entry.claim}: needs {one.subject} to be {one.wanted}, but claim {ClaimKey(*row[:3])} has it set to {row[3]}; "
                "it can be set again when that claim is unprepared"
            )
    return None


def _select(connection: sqlite3.Connection, where: str, arguments: tuple[str, ...]) -> list[Entry]:
    # `where` is one of two constants of this module; values are bound.
    inner = f"SELECT uid FROM claims {where}"  # noqa: S608
    devices: dict[str, list[HeldDevice]] = {}
    query = f"SELECT claim_uid, pool, device, uuid, share_id, admin FROM devices WHERE claim_uid IN ({inner}) ORDER BY device, pool, share_id"  # noqa: S608
    for uid, pool, device, uuid, share_id, admin in connection.execute(query, arguments):
        devices.setdefault(uid, []).append(HeldDevice(pool, device, uuid, share_id, bool(admin)))
    changes: dict[str, list[ChangeRecord]] = {}
    query = f"SELECT claim_uid, subject, wanted, before FROM host_changes WHERE claim_uid IN ({inner}) ORDER BY claim_uid, position"  # noqa: S608
    for uid, *record in connection.execute(query, arguments):
        changes.setdefault(uid, []).append(ChangeRecord(*record))
    query = f"SELECT uid, namespace, name, allocation, prepared, pod_claim, boot_id, revision FROM claims {where} ORDER BY uid"  # noqa: S608
    return [
        Entry(
            ClaimKey(namespace, name, uid),
            msgspec.json.decode(allocation, type=DeviceAllocationResult),
            tuple(devices.get(uid, ())),
            tuple(changes.get(uid, ())),
            bool(prepared),
            pod_claim,
            boot_id,
            revision,
        )
        for uid, namespace, name, allocation, prepared, pod_claim, boot_id, revision in connection.execute(query, arguments)
    ]
