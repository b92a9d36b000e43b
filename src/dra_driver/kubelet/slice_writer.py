"""One pass of the publisher: list our slices, compare content, write the difference.

What an API server makes of a slice is not known beforehand: fields of disabled feature gates are dropped silently or refused, and others may change
what we send. So a slice is asked about, by a dry run, before the first write that uses a feature which this server has not been seen to store, and
before the first write over a slice that an earlier process left: so nothing is ever offered with a field missing, and a restart that would change
nothing writes nothing. What was learned holds until the process ends or all our slices vanish.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from dra_driver.errors import ApiError, ApiInvalidError, ApiNotFoundError, HostError, InstanceConflictError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, ResourceSlice, ResourceSliceSpec
from dra_driver.kubelet import slice_content, slice_features, slices
from dra_driver.kubelet.slice_features import Pool

log = logging.getLogger(__name__)

CALL_DEADLINE = 10.0
VERBS = ("create", "replace", "delete")  # of `Counts.writes`


class Counts(msgspec.Struct):
    """Since the start, for metrics; `left_out` are the devices that are not offered now, for want of features of the API server."""

    passes: int = 0
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    writes: Counter[str] = msgspec.field(default_factory=Counter)
    dropped: Counter[str] = msgspec.field(default_factory=Counter)
    left_out: int = 0


class NotLeadingError(Exception):
    """Another instance has taken over; whatever is left to write is its to write."""


class SliceWriter:
    """The slices of `driver` on `node`. `lacking` are the feature gates that the API server was found to lack, `foreign` names of others' slices."""

    def __init__(self, client: Client, *, driver: str, node: str, leads: Callable[[], bool]) -> None:
        self.counts = Counts()
        self.lacking: frozenset[str] = frozenset()
        self.foreign: tuple[str, ...] = ()
        self.selector = f"spec.driver={driver},spec.nodeName={node}"
        self._client = client
        self._driver = driver
        self._node = node
        self._leads = leads
        self._present = False
        self._proved: frozenset[str] = frozenset()
        self._met: set[str] = set()  # slices that this process has written or asked about
        self._written: dict[str, str] = {}
        self._altered: dict[str, tuple[ResourceSliceSpec, ResourceSliceSpec]] = {}

    def reach(self, pools: Mapping[str, Pool]) -> bool:
        """Makes the slices say `pools`, and no other pool. False: something was learned on the way, another pass is needed.

        Raises InstanceConflictError where another driver's slices are on this node, HostError without a Node object, NotLeadingError, and ApiError.
        """
        self._lead()
        self.counts.passes += 1
        found = slices.sort_out(self._driver, self._listed(), {name: {one.name for one in pool.devices} for name, pool in pools.items()})
        self.foreign = tuple(sorted(one.metadata.name for one in found.foreign))
        if self.foreign:
            raise InstanceConflictError(
                f"ResourceSlices of {self._driver} on node {self._node} belong to another driver: {', '.join(self.foreign)}; nothing is published "
                "beside them; end that driver, and delete them if they stay"
            )
        if self._present and not found.ours:
            self.lacking = frozenset()  # wiped by a kubelet that started: the API server may be another one as well
        self._present = bool(found.ours)
        self._proved = self._proved.union(*(slice_features.used(one.spec) for group in found.ours.values() for one in group))
        reached = [self._reach(name, pools.get(name), found.ours.get(name, ())) for name in sorted({*pools, *found.ours})]
        self.counts.left_out = sum(len(pool.devices) - len(slice_features.simplified(pool, self.lacking).devices) for pool in pools.values())
        return all(reached)

    def _listed(self) -> Sequence[ResourceSlice]:
        try:
            return self._client.list(RESOURCE_SLICES, field_selector=self.selector, deadline=CALL_DEADLINE).items
        except ApiNotFoundError as error:  # of the kind, which is no race with another writer
            raise ApiError(f"{error.message}; resource.k8s.io/v1 needs Kubernetes 1.34 or newer", status=error.status, reason=error.reason) from error

    def is_echo(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Whether a change seen in a watch is just what we have written."""
        if new is None and old is not None:
            self._written.pop(old.metadata.name, None)
            self._altered.pop(old.metadata.name, None)
            self._met.discard(old.metadata.name)
        return new is not None and self._written.get(new.metadata.name) == new.metadata.resource_version

    def _reach(self, name: str, pool: Pool | None, existing: Sequence[ResourceSlice]) -> bool:
        changes = slices.Changes(delete=tuple(existing)) if pool is None else self._settled(name, pool, existing)
        if not changes:
            return True
        for one in changes.delete:
            self._delete(one)
        for one in (*changes.replace, *changes.mark):
            if not self._write("replace", one):
                return False
        for one in changes.create:
            if not self._write("create", one):
                return False
        log.info(
            "slices published",
            extra={
                "pool": name,
                "devices": 0 if pool is None else len(pool.devices),
                "slices_created": len(changes.create),
                "slices_replaced": len(changes.replace) + len(changes.mark),
                "slices_deleted": len(changes.delete),
            },
        )
        return True

    # What would become of it ----------------------------------------------------------------------------------------

    def _settled(self, name: str, pool: Pool, existing: Sequence[ResourceSlice]) -> slices.Changes:
        """The changes, once everything that must be asked about them is answered."""
        while True:
            wanted = slices.layout(slice_features.simplified(pool, self.lacking))
            changes = slices.plan(self._driver, self._node, name, wanted, [self._as_sent(one) for one in existing])
            if changes.create:
                changes = self._owned(changes)
            if not self._ask(changes, {one.metadata.name: one for one in existing}):
                return changes

    def _owned(self, changes: slices.Changes) -> slices.Changes:
        """New slices belong to the Node as it is now: they vanish with it, and its successor has another UID."""
        try:
            uid = self._client.get(NODES, self._node, deadline=CALL_DEADLINE).metadata.uid
        except ApiNotFoundError as error:
            raise HostError(f"Node {self._node}: there is no such object, and slices belong to it; has the kubelet registered yet?") from error
        created = tuple(slices.owned_by_node(one, self._node, uid) for one in changes.create)
        return slices.Changes(changes.delete, changes.replace, created, changes.mark)

    def _ask(self, changes: slices.Changes, existing: Mapping[str, ResourceSlice]) -> bool:
        """Whether a dry run taught something that changes the plan."""
        for one in (*changes.replace, *changes.create):
            name = one.metadata.name
            if slice_features.used(one.spec) <= self._proved and (not name or name in self._met):
                continue
            self._met.add(name)
            send = self._client.replace if name else self._client.create
            try:
                answer = send(RESOURCE_SLICES, one, deadline=CALL_DEADLINE, dry_run=True)
            except ApiInvalidError as error:
                self._blame(one, error)
                return True
            except ApiError as error:
                if error.status != 400:
                    raise
                log.debug("a slice cannot be tried before it is written", extra={"error": str(error)})  # an admission webhook without dry runs
                continue
            if self._has_dropped(one, answer):
                return True
            if name and not slice_content.same(existing[name].spec, one.spec) and slice_content.same(existing[name].spec, answer.spec):
                self._altered[name] = (one.spec, existing[name].spec)
                return True
        return False

    def _blame(self, one: ResourceSlice, error: ApiInvalidError) -> None:
        """Gives up the feature that the refusal points at; raises the refusal when it points at none."""
        gate = slice_features.blamed(error.message, slice_features.used(one.spec))
        if gate is None:
            raise error
        self._lack({gate}, error.message)

    def _has_dropped(self, sent: ResourceSlice, stored: ResourceSlice) -> bool:
        kept = slice_features.used(stored.spec)
        self._proved |= kept
        lost = slice_features.used(sent.spec) - kept
        if lost:
            self._lack(lost, "its fields were dropped")
        return bool(lost)

    def _lack(self, gates: Collection[str], why: str) -> None:
        for gate in sorted(gates):
            self.counts.dropped[gate] += 1
            log.warning("the API server lacks a feature, publishing in a simpler form", extra={"feature_gate": gate, "reason": why})
        self.lacking |= frozenset(gates)
        self._proved -= frozenset(gates)

    # Writing --------------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        if not self._leads():
            raise NotLeadingError

    def _delete(self, one: ResourceSlice) -> None:
        self._lead()
        meta = one.metadata
        with contextlib.suppress(ApiNotFoundError):
            self._client.delete(RESOURCE_SLICES, meta.name, uid=meta.uid, resource_version=meta.resource_version, deadline=CALL_DEADLINE)
        self.counts.writes["delete"] += 1

    def _write(self, verb: str, one: ResourceSlice) -> bool:
        """False when the API server refused or dropped a feature."""
        self._lead()
        send = self._client.create if verb == "create" else self._client.replace
        try:
            stored = send(RESOURCE_SLICES, one, deadline=CALL_DEADLINE)
        except ApiInvalidError as error:
            self._blame(one, error)
            return False
        self.counts.writes[verb] += 1
        name = stored.metadata.name
        self._met.add(name)
        self._written[name] = stored.metadata.resource_version
        self._altered.pop(name, None)
        if self._has_dropped(one, stored):
            return False
        if not slice_content.same(stored.spec, one.spec):
            self._altered[name] = (one.spec, stored.spec)
            log.warning("the API server stored a slice otherwise than it was sent; does an admission webhook change it?", extra={"slice": name})
        return True

    def _as_sent(self, found: ResourceSlice) -> ResourceSlice:
        """The slice as we sent it, where the server made something else of it and nobody has changed that since."""
        if found.metadata.name not in self._altered:
            return found
        sent, stored = self._altered[found.metadata.name]
        if not slice_content.same(found.spec, stored):
            return found
        kept = msgspec.structs.replace(sent, pool=found.spec.pool, node_name=found.spec.node_name)
        return msgspec.structs.replace(found, spec=kept)
