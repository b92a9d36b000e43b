"""The kubelet removes ResourceSlices that nobody keeps: all of the node when it starts, those of a driver when its last instance is long gone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from tenacity import Retrying, retry_if_exception_type, stop_when_event_set, wait_exponential
from tenacity.nap import sleep_using_event

from dra_driver.errors import ApiError, ApiNotFoundError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.core import NODES
from dra_driver.k8s.objects.resource import RESOURCE_SLICES
from dra_driver.sandbox.kubelet.plugin import DraPlugin
from dra_driver.sandbox.kubelet.timing import Timing

log = logging.getLogger(__name__)


class SliceWiper:
    """Wipes in threads of its own, repeating until the API server agrees or `close` is called."""

    def __init__(self, client: Client, node_name: str, *, timing: Timing) -> None:
        self._client = client
        self._node_name = node_name
        self._timing = timing
        self._closing = threading.Event()
        self._known: set[str] = set()
        self._due: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def wipe(self, driver: str = "") -> None:
        """Starts to delete the node's slices of one driver, or of all."""
        thread = threading.Thread(target=self._wipe, args=(driver,), name=f"kubelet-wipe-{driver or 'all'}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def watch(self, plugins: Iterable[DraPlugin]) -> None:
        """Is told the registered instances again and again. A driver without a connected one for `wiping_delay` seconds loses its slices, once."""
        now = time.monotonic()
        usable = {plugin.driver for plugin in plugins if plugin.connected}
        self._known |= usable
        for driver in usable:
            self._due.pop(driver, None)
        for driver in self._known - usable:
            if now >= self._due.setdefault(driver, now + self._timing.wiping_delay):
                self._known.discard(driver)
                self._due.pop(driver)
                self.wipe(driver)

    def wait(self, timeout: float) -> bool:
        """Waits until all that was begun is done."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Gives up what is not done."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _wipe(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node_name}" + (f",spec.driver={driver}" if driver else "")
        attempts = Retrying(
            retry=retry_if_exception_type(ApiError),
            wait=wait_exponential(multiplier=self._timing.wiping_backoff, max=self._timing.wiping_backoff_limit),
            sleep=sleep_using_event(self._closing),
            stop=stop_when_event_set(self._closing),
            retry_error_callback=lambda _: None,
        )
        attempts(self._wipe_once, selector)

    def _wipe_once(self, selector: str) -> None:
        self._client.get(NODES, self._node_name)
        try:
            self._client.delete_collection(RESOURCE_SLICES, field_selector=selector)
        except ApiNotFoundError:
            return
        log.info("slices wiped", extra={"field_selector": selector})
