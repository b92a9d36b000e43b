"""The objects: create, read, update, delete with the rules that hold for every kind.

Thread-safe. Objects go in and come out as JSON values; unknown fields survive, quite unlike in a real server. Garbage collection by
ownerReferences and the removal of a namespace's content happen at once, where a real cluster leaves them to its controller manager.
"""

from __future__ import annotations

import copy
import random
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

from dra_driver.daemon.clock import Clock
from dra_driver.k8s import field_errors, names
from dra_driver.sandbox.apiserver import refusals
from dra_driver.sandbox.apiserver.history import Change, Entry, History, with_version
from dra_driver.sandbox.apiserver.kinds import Resource, Write
from dra_driver.sandbox.apiserver.merge_patch import merged
from dra_driver.sandbox.apiserver.selectors import Match

Json = dict[str, Any]
Key = tuple[Resource, str, str]

GENERATED_NAME_BASE = 58
DEFAULT_GRACE_PERIOD = 30
HISTORY = 20_000
_SNAPSHOTS = 100
_PAGE_MARK = "page-"
_NAME_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter."
)


class Store:
    """`changed` is notified, with its lock held, after every change; it also guards all state."""

    def __init__(self, clock: Clock, seed: int, disabled_gates: frozenset[str]) -> None:
        self.changed = threading.Condition()
        self.history = History(HISTORY)
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - names and UIDs that repeat from run to run
        self._disabled_gates = disabled_gates
        self._entries: dict[Key, Entry] = {}
        self._snapshots: dict[str, tuple[int, list[Entry]]] = {}

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """One object."""
        with self.changed:
            return self._existing(resource, namespace, name)

    def page(self, resource: Resource, namespace: str, match: Match, limit: int, token: str) -> tuple[list[Entry], int, str, int]:
        """Objects sorted by namespace and name, resourceVersion, continue token, and how many remain. Pages show one snapshot."""
        with self.changed:
            if token:
                version, found = self._continued(token)
            else:
                version, found = self.history.version, self._matching(resource, namespace, match)
            if not limit or len(found) <= limit:
                return found, version, "", 0
            return found[:limit], version, self._token(version, found[limit:]), len(found) - limit

    def create(self, resource: Resource, namespace: str, body: Json, *, dry_run: bool = False) -> Entry:
        """POST. With `dry_run`, here as for PUT, nothing is stored."""
        new = self._accepted(resource, namespace, body)
        metadata = new["metadata"]
        if metadata.get("resourceVersion"):
            raise refusals.Refusal(500, "", "resourceVersion should not be set on objects to be created")
        with self.changed:
            if resource.namespaced and not self._has_namespace(namespace):
                raise refusals.not_found("", "namespaces", namespace)
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = self._generated(metadata["generateName"])
            metadata.pop("deletionTimestamp", None)
            metadata |= {"uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)), "creationTimestamp": self._now()}
            if resource.counts_generations:
                metadata["generation"] = 1
            if resource.first_status is not None:
                new["status"] = dict(resource.first_status)
            self._admit(resource, Write(new, None, self._now(), self._disabled_gates))
            if (resource, namespace, metadata["name"]) in self._entries:
                raise refusals.already_exists(resource.group, resource.plural, metadata["name"])
            return Entry.of(new) if dry_run else self._put(resource, None, new)

    def replace(self, resource: Resource, namespace: str, name: str, body: Json, *, status: bool = False, dry_run: bool = False) -> Entry:
        """PUT of the object, or of its status alone. A write that changes nothing keeps the resourceVersion."""
        new = self._accepted(resource, namespace, body)
        if new["metadata"].get("name") != name:
            raise refusals.bad_request(f"the name of the object ({new['metadata'].get('name', '')}) does not match the name on the URL ({name})")
        with self.changed:
            entry = self._existing(resource, namespace, name)
            old = entry.data
            self._expect(resource, old, new["metadata"].get("uid"), new["metadata"].get("resourceVersion"))
            if not new["metadata"].get("resourceVersion") and not resource.unconditional:
                error = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise refusals.unprocessable(resource.group, resource.kind, name, [error])
            new = _status_only(old, new) if status else _spec_only(resource, old, new)
            write = Write(new, copy.deepcopy(old), self._now(), self._disabled_gates)
            if status:
                self._refuse(resource, name, resource.validate_status(write))
            else:
                self._admit(resource, write)
                if resource.counts_generations and new.get("spec") != old.get("spec"):
                    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            if dry_run:
                return Entry.of(new)
            if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not _grace(new):
                self._remove(resource, entry)
                return Entry.of(new)
            return entry if new == old else self._put(resource, entry, new)

    def patch(self, resource: Resource, namespace: str, name: str, changes: Any, *, status: bool = False) -> Entry:
        """PATCH with a JSON merge patch: a replace of what is there now, changed so."""
        with self.changed:
            return self.replace(resource, namespace, name, merged(self._existing(resource, namespace, name).data, changes), status=status)

    def delete(self, resource: Resource, namespace: str, name: str, options: Json) -> Entry:
        """DELETE: at once, or, with finalizers or a kubelet to wait for, a deletionTimestamp. Returns the last state."""
        with self.changed:
            entry = self._existing(resource, namespace, name)
            self._expect_to_delete(resource, entry.data, options.get("preconditions") or {})
            metadata, spec = entry.data["metadata"], entry.data.get("spec") or {}
            grace = options.get("gracePeriodSeconds")
            if not resource.graceful or not spec.get("nodeName"):
                grace = 0
            elif grace is None:
                grace = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD)
            if not grace and not metadata.get("finalizers"):
                return self._remove(resource, entry)
            if metadata.get("deletionTimestamp") and grace >= (_grace(entry.data) or 0):
                return entry
            marks = {"deletionTimestamp": metadata.get("deletionTimestamp") or self._now(), "deletionGracePeriodSeconds": grace}
            return self._put(resource, entry, {**entry.data, "metadata": {**metadata, **marks}})

    def delete_collection(self, resource: Resource, namespace: str, match: Match, options: Json) -> list[Entry]:
        """DELETE of all that match."""
        with self.changed:
            found = self._matching(resource, namespace, match)
            return [self.delete(resource, *_where(entry.data), options) for entry in found]

    def inject(self, resource: Resource, data: Json) -> None:
        """Stores an object as it is, valid or not: what an older or broken writer may have left."""
        with self.changed:
            old = self._entries.get((resource, *_where(data)))
            self._put(resource, old, copy.deepcopy(data))

    def compact(self) -> None:
        """Forgets the history and the snapshots of lists in pages: older resourceVersions and continue tokens meet 410."""
        with self.changed:
            self.history.compact()
            self._snapshots.clear()

    def _accepted(self, resource: Resource, namespace: str, body: Any) -> Json:
        if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
            raise refusals.bad_request(f"the body is not a {resource.kind}")
        if (body.get("apiVersion"), body.get("kind")) != (resource.group_version, resource.kind):
            found = f"{body.get('kind')} of {body.get('apiVersion')}"
            raise refusals.bad_request(f"{found} cannot be handled as a {resource.kind} of {resource.group_version}")
        new = copy.deepcopy(body)
        metadata = new.setdefault("metadata", {})
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            raise refusals.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if resource.has_spec:
            new.setdefault("spec", {})
        return new

    def _admit(self, resource: Resource, write: Write) -> None:
        metadata = write.new["metadata"]
        resource.prepare(write)
        name = metadata.get("name") or ""
        errors = []
        if not name:
            errors.append(field_errors.required("metadata.name", "name or generateName is required"))
        elif error := names.dns_subdomain_error(name):
            errors.append(field_errors.invalid("metadata.name", name, error))
        self._refuse(resource, name, [*errors, *resource.validate(write)])

    def _refuse(self, resource: Resource, name: str, errors: Iterable[field_errors.FieldError]) -> None:
        if found := list(errors):
            raise refusals.unprocessable(resource.group, resource.kind, name, found)

    def _expect(self, resource: Resource, old: Json, uid: str | None, version: str | None) -> None:
        metadata = old["metadata"]
        if uid and uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        elif version and version != metadata["resourceVersion"]:
            why = _MODIFIED
        else:
            return
        raise refusals.conflict(resource.group, resource.plural, metadata["name"], why)

    def _expect_to_delete(self, resource: Resource, old: Json, preconditions: Json) -> None:
        metadata = old["metadata"]
        uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
        if uid and uid != metadata["uid"]:
            why = f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            why += "The object might have been deleted and then recreated"
        elif version and version != metadata["resourceVersion"]:
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            why += f"({metadata['resourceVersion']}). The object might have been modified"
        else:
            return
        raise refusals.conflict(resource.group, resource.kind, metadata["name"], why)

    def _existing(self, resource: Resource, namespace: str, name: str) -> Entry:
        try:
            return self._entries[resource, namespace, name]
        except KeyError:
            raise refusals.not_found(resource.group, resource.plural, name) from None

    def _matching(self, resource: Resource, namespace: str, match: Match) -> list[Entry]:
        keys = sorted(key[1:] for key in self._entries if key[0] is resource and namespace in ("", key[1]))
        return [entry for key in keys if match((entry := self._entries[resource, *key]).data)]

    def _has_namespace(self, name: str) -> bool:
        return any(key[0].plural == "namespaces" and key[2] == name for key in self._entries)

    def _put(self, resource: Resource, old: Entry | None, new: Json) -> Entry:
        version = self.history.version + 1
        entry = Entry.of(with_version(new, version))
        self._entries[resource, *_where(new)] = entry
        self.history.append(Change(version, resource, old, entry))
        self.changed.notify_all()
        return entry

    def _remove(self, resource: Resource, old: Entry) -> Entry:
        del self._entries[resource, *_where(old.data)]
        version = self.history.version + 1
        gone = Entry.of(with_version(old.data, version))
        self.history.append(Change(version, resource, old, None, gone))
        self.changed.notify_all()
        self._collect(resource, old.data)
        return gone

    def _collect(self, resource: Resource, gone: Json) -> None:
        """Dependents whose last owner has gone, and the content of a namespace."""
        uid, name = gone["metadata"].get("uid"), gone["metadata"]["name"]
        alive = {entry.data["metadata"].get("uid") for entry in self._entries.values()}
        for key, entry in list(self._entries.items()):
            owners = [owner.get("uid") for owner in entry.data["metadata"].get("ownerReferences") or ()]
            orphaned = uid in owners and not alive.intersection(owners)
            if (orphaned or (resource.plural == "namespaces" and key[1] == name)) and key in self._entries:
                self.delete(*key, {"gracePeriodSeconds": 0})

    def _generated(self, base: str) -> str:
        return base[:GENERATED_NAME_BASE] + "".join(self._random.choices(_NAME_CHARACTERS, k=5))

    def _token(self, version: int, rest: list[Entry]) -> str:
        while len(self._snapshots) >= _SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        token = f"{_PAGE_MARK}{self._random.getrandbits(64):x}"
        self._snapshots[token] = (version, rest)
        return token

    def _continued(self, token: str) -> tuple[int, list[Entry]]:
        if not token.startswith(_PAGE_MARK):
            raise refusals.bad_request(f"invalid continue token: {token!r}")
        if token not in self._snapshots:
            raise refusals.expired(_CONTINUE_EXPIRED)
        return self._snapshots[token]

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock.now()))


def _where(data: Json) -> tuple[str, str]:
    return data["metadata"].get("namespace", ""), data["metadata"]["name"]


def _grace(data: Json) -> int | None:
    grace: int | None = data["metadata"].get("deletionGracePeriodSeconds")
    return grace


def _status_only(old: Json, new: Json) -> Json:
    merged = {**old, "status": new["status"]} if new.get("status") else {key: value for key, value in old.items() if key != "status"}
    return copy.deepcopy(merged)


def _spec_only(resource: Resource, old: Json, new: Json) -> Json:
    """What a PUT cannot change is taken from the stored object."""
    kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")
    before = old["metadata"]
    metadata = {key: value for key, value in new["metadata"].items() if key not in kept} | {key: before[key] for key in kept if key in before}
    merged = {**new, "metadata": metadata}
    if resource.has_status:
        merged.pop("status", None)
        merged |= {"status": old["status"]} if "status" in old else {}
    return copy.deepcopy(merged)
