"""Every change since the last compaction, in order, for watches to follow.

One counter is the resourceVersion of everything, and every change takes the next number, as one revision of etcd does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dra_driver.sandbox.apiserver.kinds import Resource
from dra_driver.sandbox.apiserver.refusals import expired
from dra_driver.sandbox.apiserver.selectors import Match

Json = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One stored object; `data` is never changed."""

    data: Json
    raw: bytes

    @classmethod
    def of(cls, data: Json) -> Entry:
        """Encodes once for all readers."""
        return cls(data, json.dumps(data, separators=(",", ":")).encode())


@dataclass(frozen=True)
class Change:
    """`old` or `new` is None for a creation or a deletion; `gone` is then the last state with the resourceVersion of the deletion."""

    version: int
    resource: Resource
    old: Entry | None
    new: Entry | None
    gone: Entry | None = None

    def event(self, match: Match) -> tuple[str, bytes] | None:
        """What a watch with this selector sees: an object that starts or stops to match appears or disappears."""
        before = self.old is not None and match(self.old.data)
        if self.new is not None and match(self.new.data):
            return ("MODIFIED" if before else "ADDED"), self.new.raw
        if not before or self.old is None:
            return None
        gone = self.gone or Entry.of(with_version(self.old.data, self.version))
        return "DELETED", gone.raw


class History:
    """Not thread-safe: its owner holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self.version = 1

    @property
    def oldest(self) -> int:
        """A watch may start at this resourceVersion or a newer one."""
        return self.version - len(self._changes)

    def append(self, change: Change) -> None:
        """Takes the next number."""
        self.version = change.version
        self._changes.append(change)
        if len(self._changes) > self._limit:
            del self._changes[: self._limit // 2]

    def compact(self) -> None:
        """Forgets all changes so far."""
        self._changes.clear()

    def after(self, version: int) -> list[Change]:
        """The changes that follow; 410 when some of them are forgotten."""
        if version < self.oldest:
            raise expired(f"too old resource version: {version} ({self.oldest})")
        return self._changes[len(self._changes) - (self.version - version) :] if version < self.version else []


def with_version(data: Json, version: int) -> Json:
    """A copy with another resourceVersion."""
    return {**data, "metadata": {**data["metadata"], "resourceVersion": str(version)}}
