"""When slices came and went, as any client sees it: by a watch that was open before."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from e2e.kube import Kube


@dataclass(frozen=True)
class Change:
    """One event of the watch; `at` is by the monotonic clock."""

    at: float
    driver: str
    name: str
    gone: bool


class Timeline:
    """Records the changes of all slices from its making until `close`."""

    def __init__(self, kube: Kube) -> None:
        api: Any = client.ResourceV1Api(kube.api)  # raw answers: the typed models take milliseconds
        listing = json.loads(api.list_resource_slice(_preload_content=False).data)
        self._present = {one["metadata"]["name"]: one["spec"]["driver"] for one in listing["items"]}
        self._changes: list[Change] = []
        self._news = threading.Condition()
        self._closing = False
        self._response = api.list_resource_slice(
            watch=True, resource_version=listing["metadata"]["resourceVersion"], timeout_seconds=3600, _preload_content=False
        )
        self._thread = threading.Thread(target=self._follow, name="slices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch."""
        self._closing = True
        self._response.shutdown()
        self._thread.join()
        self._response.close()

    def wait_first(self, driver: str, since: float, limit: float) -> float:
        """When the first slice of the driver after `since` came. AssertionError after `limit` seconds."""
        self._wait(f"{driver} publishes", lambda: self._first(driver, since) is not None, limit)
        first = self._first(driver, since)
        assert first is not None
        return first

    def wait_replaced(self, driver: str, since: float, limit: float) -> None:
        """Until all slices of the driver were removed and one came back. AssertionError after `limit` seconds."""
        self._wait(f"the slices of {driver} are removed", lambda: self.absent(driver, since, time.monotonic()) > 0, limit)
        self._wait(f"{driver} publishes again", lambda: bool(self._names(driver, self._changes)), limit)

    def absent(self, driver: str, since: float, until: float) -> float:
        """For how many seconds of that time there was no slice of the driver."""
        before = [one for one in self._changes if one.at < since]
        names, last, total = self._names(driver, before), since, 0.0
        for one in self._changes:
            if one.driver != driver or not since <= one.at <= until:
                continue
            if not names:
                total += one.at - last
            (names.discard if one.gone else names.add)(one.name)
            last = one.at
        return total + (0.0 if names else until - last)

    def _wait(self, what: str, condition: Callable[[], bool], limit: float) -> None:
        with self._news:
            assert self._news.wait_for(condition, limit), f"not within {limit:.0f} s: {what}"

    def _first(self, driver: str, since: float) -> float | None:
        return next((one.at for one in self._changes if one.driver == driver and one.at >= since and not one.gone), None)

    def _names(self, driver: str, changes: list[Change]) -> set[str]:
        names = {name for name, owner in self._present.items() if owner == driver}
        for one in changes:
            if one.driver == driver:
                (names.discard if one.gone else names.add)(one.name)
        return names

    def _follow(self) -> None:
        try:
            self._read()
        except HTTPError:
            if not self._closing:
                raise

    def _read(self) -> None:
        pending = b""
        for chunk in self._response.stream(1 << 16):
            at = time.monotonic()
            *lines, pending = (pending + chunk).split(b"\n")
            with self._news:
                for line in filter(None, lines):
                    event = json.loads(line)
                    found = event["object"]
                    assert event["type"] in {"ADDED", "MODIFIED", "DELETED"}, event
                    self._changes.append(Change(at, found["spec"]["driver"], found["metadata"]["name"], gone=event["type"] == "DELETED"))
                self._news.notify_all()
