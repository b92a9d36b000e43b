"""The publisher keeps the API server's slices of this node equal to the devices of the node.

Level-based: whatever happened (devices changed, a slice was deleted by the kubelet's wipe or by hand, the Node came back with another UID, we were
down), the answer is the same pass (slice_writer). The watch is only a bell, so a lost event costs time and never truth, and a deletion is answered
at once.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.daemon.measures import Measures
from dra_driver.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiInvalidError,
    ApiNotFoundError,
    ApiUnavailableError,
    DraError,
    HostError,
    InstanceConflictError,
)
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_SLICES, Device, ResourceSlice
from dra_driver.k8s.reflector import SILENCE, Reflector
from dra_driver.kubelet import slice_features, slice_rules, slices
from dra_driver.kubelet.slice_features import Pool
from dra_driver.kubelet.slice_writer import VERBS, Counts, NotLeadingError, SliceWriter

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds after a failure; short, since pods of this node wait meanwhile
BURST_GAP = 0.1  # seconds after a pass; doubles while others keep changing our slices, so that two writers do not make each other spin
CALM = 10.0  # seconds without a pass after which that is forgotten
RESYNC = 300.0  # seconds after which a pass is made without a bell
STANDSTILL = 60.0  # the same while only somebody else can help: foreign slices, content that is refused
FOLLOW = 1.0  # seconds between looks at the lease while another instance leads
TURN = 30.0  # seconds after which an idle loop looks at its stop event, to show that it lives
QUIET_RACES = 5  # passes in a row that lose against another writer before that is called a failure

_KINDS: Sequence[tuple[type[DraError], str]] = (
    (ApiUnavailableError, "unavailable"),
    (ApiDeniedError, "denied"),
    (ApiInvalidError, "refused"),
    (ApiConflictError, "conflict"),
    (ApiNotFoundError, "conflict"),
    (InstanceConflictError, "foreign"),
    (HostError, "no_node"),
)
FAILURES = (*dict.fromkeys(kind for _, kind in _KINDS), "error")
"""What a pass fails for, as in `Counts.failures`."""


class Publisher:
    """Publishes pools of `driver`, all of them devices of `node`. Nothing is written before the first `set_devices` or `set_pools`.

    `published` is set once a pass has found or made everything right. While `leads` says no another instance publishes; it is asked again every
    second, or when `wake` is called.
    """

    def __init__(self, client: Client, *, driver: str, node: str, clock: Clock | None = None, leads: Callable[[], bool] = lambda: True) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._clock = clock or SystemClock()
        self._bell = threading.Event()
        self._pools: Mapping[str, Pool] | None = None
        self._writer = SliceWriter(client, driver=driver, node=node, leads=leads)
        self._trouble = Trouble(log, "slices cannot be published, will be tried again", "slices can be published again", node=node)
        self._last_pass = self._clock.monotonic()
        self._pause, self._gap, self._races = FIRST_PAUSE, BURST_GAP, 0
        self._leading = True
        self.published = threading.Event()

    @property
    def problem(self) -> str:
        """Why the last pass failed, "" if it did not, or while another instance leads."""
        return self._trouble.reason if self._leading else ""

    @property
    def foreign(self) -> tuple[str, ...]:
        """Names of slices of our driver's name on this node that are not ours; nothing is published beside them."""
        return self._writer.foreign if self._leading else ()

    @property
    def lacking(self) -> frozenset[str]:
        """Feature gates that the API server was found to lack; the slices are in a simpler form."""
        return self._writer.lacking

    @property
    def counts(self) -> Counts:
        """For metrics."""
        return self._writer.counts

    def add_to(self, metrics: Measures) -> None:
        """What is measured of it."""
        gauge, counted, counts = metrics.gauge, metrics.counted, self.counts
        counted("publish_passes", "times that the slices of this node were compared with its devices", lambda: {(): counts.passes})
        counted("publish_failures", "passes that failed", lambda: {(kind,): counts.failures[kind] for kind in FAILURES}, "reason")
        counted("slice_writes", "writes of ResourceSlices", lambda: {(verb,): counts.writes[verb] for verb in VERBS}, "verb")
        lost, gates = counts.dropped, [feature.gate for feature in slice_features.FEATURES]
        counted("slice_fields_dropped", "features that the API server lacks", lambda: {(gate,): lost[gate] for gate in gates}, "feature_gate")
        gauge("devices_left_out", "devices that are not offered for want of a feature of the API server", lambda: counts.left_out)
        gauge("foreign_slices", "ResourceSlices of our driver's name on this node that are not ours", lambda: len(self.foreign))

    def set_devices(self, devices: Sequence[Device]) -> None:
        """As `set_pools` with one pool that is called like the node."""
        self.set_pools({self._node: Pool(tuple(devices))})

    def set_pools(self, pools: Mapping[str, Pool]) -> None:
        """Publishes these pools, and no others, from now on. SliceError when the API server would refuse them; the former ones stay then."""
        for name, pool in pools.items():
            slice_rules.check(name, self._as_created(name, pool))
        self._pools = dict(pools)
        self._gap = BURST_GAP
        self._bell.set()

    def watch(self, stop: threading.Event) -> None:
        """A loop: rings the bell when a slice of ours changes by another hand."""
        reflector = Reflector(
            self._client,
            RESOURCE_SLICES,
            self._changed,
            field_selector=self._writer.selector,
            longest_pause=LONGEST_PAUSE,
            silence=SILENCE,
            gap=lambda: self._listed(first=not reflector.synced.is_set()),
        )
        reflector.run(stop)

    def publish(self, stop: threading.Event) -> None:
        """A loop: makes a pass whenever the bell rings, and again after a failure, with growing pauses."""
        self._bell.set()  # also after a failure that ended this loop: what rang before it is not forgotten
        due = self._clock.monotonic()
        while not stop.is_set():
            rang = self._bell.wait(min(TURN, max(0.0, due - self._clock.monotonic())))
            if stop.is_set() or not (rang or self._clock.monotonic() >= due):
                continue
            self._bell.clear()
            pause, rest = self._turn(stop)
            due = self._clock.monotonic() + rest
            self._clock.wait(stop, pause)

    def wake(self) -> None:
        """Lets `publish` look at its stop event, at the lease and at the slices."""
        self._bell.set()

    def _turn(self, stop: threading.Event) -> tuple[float, float]:
        """One pass; how long to pause after it whatever rings, and how long without a bell."""
        if self._pools is None:
            return 0.0, RESYNC
        self._leading = True
        try:
            done = self._writer.reach(self._pools)
        except NotLeadingError:
            self._leading = False
            return BURST_GAP, FOLLOW
        except DraError as error:
            return self._failed(error, stop)
        self._races, self._pause = 0, FIRST_PAUSE
        if not done:
            self._bell.set()
            return BURST_GAP, RESYNC
        self._trouble.tell("")
        self.published.set()
        return self._calm(), RESYNC * _jitter()

    def _calm(self) -> float:
        """The pause after a good pass."""
        now = self._clock.monotonic()
        gap = self._gap if now - self._last_pass < CALM else BURST_GAP
        self._last_pass, self._gap = now, min(gap * 2, LONGEST_PAUSE)
        return gap

    def _failed(self, error: DraError, stop: threading.Event) -> tuple[float, float]:
        kind = next((name for known, name in _KINDS if isinstance(error, known)), "error")
        self._writer.counts.failures[kind] += 1
        if kind == "conflict" and self._races < QUIET_RACES:
            self._races += 1
            self._bell.set()
            return BURST_GAP, RESYNC
        if not stop.is_set():
            self._trouble.tell(str(error), kind=kind)
        if kind in ("foreign", "refused"):
            return BURST_GAP, STANDSTILL * _jitter()
        wish = error.retry_after if isinstance(error, ApiUnavailableError) else None
        pause = max(self._pause * _jitter(), min(wish or 0.0, STANDSTILL))
        self._pause = min(self._pause * 2, FOLLOW if kind == "no_node" else LONGEST_PAUSE)
        self._bell.set()
        return pause, RESYNC

    def _as_created(self, name: str, pool: Pool) -> list[ResourceSlice]:
        return list(slices.plan(self._driver, self._node, name, slices.layout(pool), ()).create)

    def _listed(self, *, first: bool) -> None:
        """Called by the watch after each list: what has gone between our last pass and the list is seen by nobody else."""
        if not first or self.counts.passes:
            self._bell.set()

    def _changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Called by the watch for each change."""
        if not self._writer.is_echo(old, new):
            self._bell.set()


def _jitter() -> float:
    return random.uniform(1.0, 1.5)  # noqa: S311 - spreads nodes, hides nothing
