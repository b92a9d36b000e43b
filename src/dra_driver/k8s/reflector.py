"""A local copy of one kind of object that follows the API server: list, then watch, for ever.

The loop ends only when it is told to stop. Whatever goes wrong - errors of the server, silence, a compacted history, an unreadable object, a handler
that raises - is counted, waited out with growing pauses and repaired by the next list or watch. Consumers are level-based: a handler that just sets
an event and a loop that reads `items` is the normal use, since after a gap only the newest state is known, not the steps towards it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Generic

from dra_driver.daemon.clock import Clock, SystemClock
from dra_driver.daemon.logs import Trouble
from dra_driver.errors import ApiError, ApiGoneError, ApiUnavailableError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.meta import K, Kind, ObjectMeta
from dra_driver.k8s.watch import Watch, WatchEvent

log = logging.getLogger(__name__)

Handler = Callable[[K | None, K | None], None]
"""Called with (old, new) in the order of the changes, from the reflector's thread; old is None for a new object, new is None for a deleted one."""

Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""

FIRST_PAUSE, LONGEST_PAUSE = 0.8, 30.0
WATCH_SECONDS = (300, 600)
SILENCE = 150.0
RELIST = 3600.0
_HEALTHY_AFTER = 10.0


class Reflector(Generic[K]):
    """One kind, optionally one namespace and what matches a selector.

    `silence` is how long a watch may say nothing, not even a bookmark, before its connection counts as dead (the server sends one a minute);
    `relist` is how long, in seconds, the copy lives without being compared with a full list. Both are the watchdogs of a loop without alarms.
    `longest_pause` is the limit of the growing pauses, in seconds. `gap` is called after every list, `synced` being set from the second one on: what
    happened before the list and since the last watch may have left no trace, such as an object that came and went.
    `lists`, `watches`, `events`, `failures` and `handler_failures` count.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[K],
        handler: Handler[K] | None = None,
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        clock: Clock | None = None,
        silence: float = SILENCE,
        relist: float = RELIST,
        longest_pause: float = LONGEST_PAUSE,
        gap: Callable[[], None] | None = None,
    ) -> None:
        self.synced = threading.Event()
        self.lists = self.watches = self.events = self.failures = self.handler_failures = 0
        self._client = client
        self._kind = kind
        self._handler = handler
        self._namespace = namespace
        self._selectors = {"field_selector": field_selector, "label_selector": label_selector}
        self._clock = clock or SystemClock()
        self._silence = silence
        self._relist = relist
        self._longest_pause = longest_pause
        self._gap = gap
        self._lock = threading.Lock()
        self._objects: dict[Key, K] = {}
        self._resource_version = ""
        self._listed = self._active = self._clock.monotonic()
        self._pauses = 0
        self._trouble = Trouble(log, "list or watch failed, will be tried again", "list and watch work again", kind=kind.name)
        self._watch: Watch[K] | None = None

    def items(self) -> dict[Key, K]:
        """A copy of what is known; empty before `synced`. The objects themselves are shared: do not change them."""
        with self._lock:
            return dict(self._objects)

    def get(self, name: str, namespace: str = "") -> K | None:
        """One object as it is known."""
        with self._lock:
            return self._objects.get((namespace, name))

    def age(self) -> float:
        """Seconds since the server last said anything, for /healthz."""
        return self._clock.monotonic() - self._active

    def run(self, stop: threading.Event) -> None:
        """The loop; returns after `stop` is set, within moments even in the middle of a watch."""
        threading.Thread(target=self._interrupt, args=(stop,), name=f"stop-{self._kind.plural}", daemon=True).start()
        while not stop.is_set():
            pause = self._round(stop)
            if pause:
                self._clock.wait(stop, pause)

    def _interrupt(self, stop: threading.Event) -> None:
        stop.wait()
        with self._lock:
            if self._watch:
                self._watch.stop()

    def _round(self, stop: threading.Event) -> float:
        """One list if it is due, one watch; the seconds to pause before the next round."""
        began, heard, wish = self._clock.monotonic(), self.events, 0.0
        try:
            if not self._resource_version or began - self._listed >= self._relist:
                self._list()
            self._follow(stop)
            if self.events > heard or self._clock.monotonic() - began >= _HEALTHY_AFTER:
                self._pauses = 0
                return 0.0
            # A watch that ends at once and says nothing would make a busy loop.
        except ApiGoneError as error:
            log.info("history is gone, listing again", extra={"kind": self._kind.name, "error": str(error)})
            self._resource_version = ""
        except ApiError as error:
            self.failures += 1
            if not stop.is_set():
                self._trouble.tell(str(error))
            if isinstance(error, ApiUnavailableError) and error.retry_after:
                wish = error.retry_after
        except Exception:
            self.failures += 1
            log.exception("list or watch failed unexpectedly", extra={"kind": self._kind.name})
        if self.events > heard:
            self._pauses = 0
        return max(wish, self._next_pause())

    def _next_pause(self) -> float:
        pause = min(FIRST_PAUSE * 2.0**self._pauses, LONGEST_PAUSE)
        self._pauses = min(self._pauses + 1, 10)
        return pause * random.uniform(1.0, 1.5)  # noqa: S311 - spreads nodes, hides nothing

    def _list(self) -> None:
        self.lists += 1
        listing = self._client.list(self._kind, self._namespace, **self._selectors, deadline=0)
        self._active = self._listed = self._clock.monotonic()
        self._trouble.tell("")
        found = {_key(item.metadata): item for item in listing.items}
        for key in self.items().keys() - found.keys():
            self._put(key, None)
        for key, item in found.items():
            self._put(key, item)
        self._resource_version = listing.resource_version
        if self._gap:
            self._gap()
        self.synced.set()

    def _follow(self, stop: threading.Event) -> None:
        self.watches += 1
        timeout = random.randint(*WATCH_SECONDS)  # noqa: S311
        with self._client.watch(
            self._kind, self._resource_version, self._namespace, **self._selectors, timeout=timeout, silence=min(self._silence, timeout + 15)
        ) as watch:
            with self._lock:
                self._watch = watch
            try:
                if not stop.is_set():
                    for event in watch:
                        self._take(event)
            finally:
                with self._lock:
                    self._watch = None

    def _take(self, event: WatchEvent[K]) -> None:
        self.events += 1
        self._active = self._clock.monotonic()
        self._trouble.tell("")
        if event.type != "BOOKMARK" and event.metadata.name:
            self._put(_key(event.metadata), None if event.type == "DELETED" else event.object)
        if event.metadata.resource_version:
            self._resource_version = event.metadata.resource_version

    def _put(self, key: Key, new: K | None) -> None:
        with self._lock:
            old = self._objects.get(key)
            if new is None:
                self._objects.pop(key, None)
            else:
                self._objects[key] = new
        if old is new or (old and new and old.metadata.resource_version == new.metadata.resource_version) or not self._handler:
            return
        try:
            self._handler(old, new)
        except Exception:
            self.handler_failures += 1
            log.exception("handler failed, going on", extra={"kind": self._kind.name, "namespace": key[0], "object": key[1]})


def _key(metadata: ObjectMeta) -> Key:
    return metadata.namespace, metadata.name
