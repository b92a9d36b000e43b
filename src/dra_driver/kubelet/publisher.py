"""The publisher keeps the API server's slices of this node equal to the devices of the node.

Level-based: whatever happened (devices changed, a slice was deleted by the kubelet's wipe or by hand, the Node came back with another UID, we were
down), the answer is the same pass: list our slices, compare content, write the difference. The watch is only a bell, so a lost event costs time and
never truth, and a deletion is answered at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.errors import ApiNotFoundError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device, ResourceSlice
from dra_driver.k8s.reflector import Reflector
from dra_driver.kubelet import slices

log = logging.getLogger(__name__)

CALL_DEADLINE = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # short, since pods of this node wait meanwhile
RESYNC = 300.0  # seconds after which a pass is made without a bell
BURST_GAP = 0.1  # seconds between passes that a bell asks for: a foreign writer must not make us spin


class Publisher:
    """Publishes the pool `node` of `driver`. Nothing is written before the first `set_devices`.

    `published` is set once a pass has found or made everything right. While `leads` says no another instance publishes; who knows that it says yes
    again calls `wake`.
    """

    def __init__(self, client: Client, *, driver: str, node: str, leads: Callable[[], bool] = lambda: True, clock: Clock | None = None) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._leads = leads
        self._clock = clock or SystemClock()
        self._bell = threading.Event()
        self._devices: tuple[Device, ...] | None = None
        self._written: dict[str, str] = {}
        self._altered: dict[str, tuple[list[Device], list[Device]]] = {}
        self._selector = f"spec.driver={driver},spec.nodeName={node}"
        self._trouble = Trouble(log, "slices cannot be published, will be tried again", "slices can be published again", pool=node)
        self.published = threading.Event()

    @property
    def problem(self) -> str:
        """Why the last pass failed, "" if it did not."""
        return self._trouble.reason

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Publishes these from now on. SliceError when the API server would refuse them; the former ones stay then."""
        slices.check_devices(devices)
        self._devices = tuple(devices)
        self._bell.set()

    def watch(self, stop: threading.Event) -> None:
        """A loop: rings the bell when a slice of ours changes by another hand."""
        Reflector(self._client, RESOURCE_SLICES, field_selector=self._selector, handler=self._changed, longest_pause=LONGEST_PAUSE).run(stop)

    def publish(self, stop: threading.Event) -> None:
        """A loop: makes a pass whenever the bell rings, and again after a failure, with growing pauses."""
        pause = FIRST_PAUSE
        self._bell.set()  # also after a failure that ended this loop: what rang before it is not forgotten
        while not stop.is_set():
            self._bell.wait(RESYNC)
            self._bell.clear()
            if stop.is_set() or self._devices is None or not self._leads():
                continue
            try:
                self._pass(self._devices)
            except DraError as error:
                if not stop.is_set():
                    self._trouble.tell(str(error))
                self._bell.set()
                self._clock.wait(stop, pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._trouble.tell("")
                self.published.set()
                pause = FIRST_PAUSE
                self._clock.wait(stop, BURST_GAP)

    def wake(self) -> None:
        """Lets `publish` look at its stop event."""
        self._bell.set()

    def _pass(self, devices: Sequence[Device]) -> None:
        listing = self._client.list(RESOURCE_SLICES, field_selector=self._selector, deadline=CALL_DEADLINE)
        existing = [self._as_sent(one) for one in listing.items if one.spec.pool.name == self._node]
        changes = slices.plan(self._driver, self._node, devices, existing)
        for one in changes.delete:
            self._delete(one)
        for one in changes.replace:
            self._note(one, self._client.replace(RESOURCE_SLICES, one, deadline=CALL_DEADLINE))
        if changes.create:
            # Slices vanish with the Node object, and its successor has another UID: ask each time.
            owner = self._client.get(NODES, self._node, deadline=CALL_DEADLINE).metadata.uid
            for one in changes.create:
                owned = slices.owned_by_node(one, self._node, owner)
                self._note(owned, self._client.create(RESOURCE_SLICES, owned, deadline=CALL_DEADLINE))
        if changes:
            log.info(
                "slices published",
                extra={
                    "pool": self._node,
                    "devices": len(devices),
                    "slices_created": len(changes.create),
                    "slices_replaced": len(changes.replace),
                    "slices_deleted": len(changes.delete),
                },
            )

    def _delete(self, one: ResourceSlice) -> None:
        meta = one.metadata
        with contextlib.suppress(ApiNotFoundError):
            self._client.delete(RESOURCE_SLICES, meta.name, uid=meta.uid, resource_version=meta.resource_version, deadline=CALL_DEADLINE)

    def _note(self, sent: ResourceSlice, stored: ResourceSlice) -> None:
        """Remembers what we wrote: its echo in the watch rings no bell, and what the server made of it is not taken for another hand's work."""
        name = stored.metadata.name
        self._written[name] = stored.metadata.resource_version
        self._altered.pop(name, None)
        if stored.spec.devices != sent.spec.devices:
            self._altered[name] = (sent.spec.devices, stored.spec.devices)
            log.warning("the API server stored other devices than were sent; is a feature gate off?", extra={"slice": name})

    def _as_sent(self, found: ResourceSlice) -> ResourceSlice:
        """The slice with the devices that we sent, where the server stored them otherwise and nobody has changed them since."""
        sent, stored = self._altered.get(found.metadata.name, (None, None))
        if sent is None or found.spec.devices != stored:
            return found
        return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, devices=sent))

    def _changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Called by the watch for each change."""
        if new is not None and self._written.get(new.metadata.name) == new.metadata.resource_version:
            return
        if new is None and old is not None:
            self._written.pop(old.metadata.name, None)
            self._altered.pop(old.metadata.name, None)
        self._bell.set()
