"""The journal: which claims hold which devices, durable before the kubelet gets its answer.

One row a claim, so the cost does not grow with the number of claims held. An exclusive device is reserved by a row under a UNIQUE index, which is the
exclusion between claims, threads and processes alike. Each row keeps the allocation that it was made for and the claim's namespace, name and UID, so
that every later question can be answered without the API server; and what was changed on the host, with what was there before.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from dra_driver.errors import ClaimError, ClaimRetryError, DeviceHeldError, DraError
from dra_driver.k8s.objects.resource import DeviceAllocationResult, DeviceRequestAllocationResult
from dra_driver.kubelet.attempts import attempt
from dra_driver.kubelet.database import Database

REVISIONS = random.SystemRandom()

_NO_UID = "pod-resources/"  # a UID is a file name, so no UID looks like this


class ClaimKey(msgspec.Struct, frozen=True):
    """A ResourceClaim as the kubelet names it. The UID is the identity; namespace and name are for the API and for people."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def without_uid(cls, namespace: str, name: str) -> ClaimKey:
        """A claim of which only the kubelet's list of pods tells, and that has no UID."""
        return cls(namespace, name, f"{_NO_UID}{namespace}/{name}")

    @property
    def has_uid(self) -> bool:
        """Whether `uid` is the claim's and not just a key for the journal."""
        return not self.uid.startswith(_NO_UID)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (UID {self.uid if self.has_uid else 'not known'})"


class HeldDevice(msgspec.Struct, frozen=True):
    """A device of a claim. The claim needs it for itself alone, but for a share of it (share id) or with admin access.

    `uuid` is the device's, or what `by_name` gives where nobody can tell.
    """

    pool: str
    device: str
    uuid: str
    share_id: str = ""
    admin: bool = False

    @classmethod
    def of(cls, result: DeviceRequestAllocationResult, uuid: str) -> HeldDevice:
        """What a claim with this result holds."""
        return cls(result.pool, result.device, uuid, result.share_id or "", bool(result.admin_access))

    @property
    def exclusive(self) -> bool:
        """Whether no other claim may have it at the same time."""
        return not self.share_id and not self.admin

    @property
    def by_name(self) -> str:
        """In the place of a UUID that is not known: then nobody else gets a device of this name."""
        return f"{self.pool}/{self.device}"


DEVICE_ORDER = attrgetter("device", "pool", "share_id")
"""In which an entry has its devices."""


def each_once(devices: Iterable[HeldDevice]) -> tuple[HeldDevice, ...]:
    """As an entry has them. Several requests of a claim may have the same device; it is held with admin access if all of them have it so."""
    held: dict[tuple[str, str, str], HeldDevice] = {}
    for one in devices:
        key = one.pool, one.device, one.share_id
        held[key] = msgspec.structs.replace(one, admin=one.admin and held.get(key, one).admin)
    return tuple(sorted(held.values(), key=DEVICE_ORDER))


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
        return row == entry and row is not None and self.is_of_this_boot(row)

    def is_of_this_boot(self, row: Entry) -> bool:
        """Whether the claim was prepared since the host was booted; what was done before that is gone. Not where the boot is not known."""
        return bool(self._boot_id) and row.boot_id == self._boot_id

    def is_incomplete(self) -> bool:
        """Whether the file is new, and nobody has looked yet for claims that hold devices already."""
        with self._db.reading() as connection:
            return connection.execute("SELECT 1 FROM meta WHERE key = 'incomplete'").fetchone() is not None

    def complete(self) -> None:
        """Notes that somebody has looked."""
        self._db.write(lambda connection: connection.execute("DELETE FROM meta WHERE key = 'incomplete'"))

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

    def adopt(self, entry: Entry) -> ClaimError | None:
        """Writes the entry of a claim that has its devices already: a fact and no wish.

        Returns what another claim has as well, which must not be; nobody else gets that until both are gone.
        """
        overlaps = attempt(entry.claim, self._overlaps, entry)
        if isinstance(overlaps, DraError):
            overlaps = {held.uuid: (held.uuid, held.by_name) for held in entry.devices}

        def change(connection: sqlite3.Connection) -> ClaimError | None:
            doubly = _held(connection, entry, overlaps)
            taken = {uuid for (uuid,) in connection.execute("SELECT uuid FROM devices WHERE exclusive AND claim_uid != ?", (entry.claim.uid,))}
            first = {held.uuid: held for held in reversed(entry.devices)}
            self._insert(connection, entry, {held for held in entry.devices if held.uuid in taken or first[held.uuid] is not held})
            return doubly or _set_otherwise(connection, entry)

        return self._db.write(change)

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
        return {held.uuid: (held.uuid, held.by_name, *self._related(held.uuid)) for held in entry.devices if not held.admin}

    def _insert(self, connection: sqlite3.Connection, entry: Entry, again: Collection[HeldDevice] = ()) -> None:
        """`again` are devices that have a row under the UNIQUE index already."""
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
            [
                (claim.uid, held.pool, held.device, held.share_id, held.uuid, held.exclusive and held not in again, held.admin)
                for held in entry.devices
            ],
        )
        if entry.changes:
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
            f"WHERE uuid IN ({places}) AND NOT admin AND (share_id = '' OR ? OR share_id = ?) AND claim_uid != ?"
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
    query = f"SELECT uid, namespace, name, allocation, prepared, pod_claim, boot_id, revision FROM claims {where} ORDER BY uid"  # noqa: S608
    rows = connection.execute(query, arguments).fetchall()
    if not rows:
        return []
    inner = f"SELECT uid FROM claims {where}"  # noqa: S608
    devices: dict[str, list[HeldDevice]] = {}
    query = f"SELECT claim_uid, pool, device, uuid, share_id, admin FROM devices WHERE claim_uid IN ({inner}) ORDER BY device, pool, share_id"  # noqa: S608
    for uid, pool, device, uuid, share_id, admin in connection.execute(query, arguments):
        devices.setdefault(uid, []).append(HeldDevice(pool, device, uuid, share_id, bool(admin)))
    changes: dict[str, list[ChangeRecord]] = {}
    query = f"SELECT claim_uid, subject, wanted, before FROM host_changes WHERE claim_uid IN ({inner}) ORDER BY claim_uid, position"  # noqa: S608
    for uid, *record in connection.execute(query, arguments):
        changes.setdefault(uid, []).append(ChangeRecord(*record))
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
        for uid, namespace, name, allocation, prepared, pod_claim, boot_id, revision in rows
    ]
