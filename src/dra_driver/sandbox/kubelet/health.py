"""What the kubelet knows of the health of devices: one stream to each instance of a driver, and a cache in which all streams of a driver meet."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from dra_driver.kubelet._proto import dra_health_v1_pb2, dra_health_v1_pb2_grpc, dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc
from dra_driver.sandbox.kubelet.release import Release
from dra_driver.sandbox.kubelet.timing import Timing

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 30.0
LONGEST_MESSAGE = 1024

_Stub = Callable[[grpc.Channel], Any]
_SERVICES: Mapping[str, tuple[Any, _Stub]] = {
    "v1.DRAResourceHealth": (dra_health_v1_pb2, dra_health_v1_pb2_grpc.DRAResourceHealthStub),
    "v1alpha1.DRAResourceHealth": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub),
}


@dataclass(frozen=True)
class KnownHealth:
    """As a pod's status shows it: Healthy, Unhealthy or Unknown."""

    health: str = "Unknown"
    message: str = ""


@dataclass(frozen=True)
class _Entry:
    known: KnownHealth
    timeout: float
    updated: float


class HealthCache:
    """By driver, pool and device. It counts from when a message came, not from the time that is written in it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._drivers: dict[str, dict[tuple[str, str], _Entry]] = {}

    def of(self, driver: str, pool: str, device: str) -> KnownHealth:
        """Unknown as well where the last message is older than the device's timeout."""
        with self._changed:
            entry = self._drivers.get(driver, {}).get((pool, device))
        return entry.known if entry and time.monotonic() - entry.updated <= entry.timeout else KnownHealth()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 10.0) -> bool:
        """Waits until `condition` holds; it is asked again after each message and each end of a stream."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def update(self, driver: str, devices: Iterable[Any]) -> None:
        """Takes one message; devices that are not in it and timed out are dropped."""
        now = time.monotonic()
        with self._changed:
            entries = self._drivers.setdefault(driver, {})
            mentioned = set()
            for one in devices:
                key = (one.device.pool_name, one.device.device_name)
                mentioned.add(key)
                status = ("Unknown", "Healthy", "Unhealthy")[one.health if one.health in {1, 2} else 0]
                timeout = one.health_check_timeout_seconds
                entries[key] = _Entry(KnownHealth(status, _truncated(one.message)), timeout if timeout > 0 else DEFAULT_TIMEOUT, now)
            for key, entry in list(entries.items()):
                if key not in mentioned and now - entry.updated > entry.timeout:
                    del entries[key]
            self._changed.notify_all()

    def forget(self, driver: str) -> None:
        """What happens when a stream to any instance of the driver ends."""
        with self._changed:
            self._drivers.pop(driver, None)
            self._changed.notify_all()


class HealthWatch:
    """Keeps a stream to one instance open until `close`. `attempts` has the outcome of each that ended, as the name of its gRPC status."""

    def __init__(self, channel: grpc.Channel, driver: str, service: str, cache: HealthCache, *, release: Release, timing: Timing) -> None:
        self.service = service
        self.attempts: list[str] = []
        self._driver = driver
        self._cache = cache
        self._release = release
        self._timing = timing
        self._messages, stub = _SERVICES[service]
        self._stub = stub(channel)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kubelet-health-{driver}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """To be called when the channel is closed, which ends the stream."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            outcome = self._watch()
            self._cache.forget(self._driver)
            self.attempts.append(outcome)
            log.debug("health stream ended", extra={"driver": self._driver, "outcome": outcome})
            if self._release.gives_up and outcome == "UNIMPLEMENTED":
                return
            self._closing.wait(self._timing.health_retry)

    def _watch(self) -> str:
        try:
            for message in self._stub.NodeWatchResources(self._messages.NodeWatchResourcesRequest()):
                self._cache.update(self._driver, message.devices)
        except grpc.RpcError as error:
            return str(error.code().name)
        except ValueError:  # the channel is closed
            return "CANCELLED"
        return "OK"


def _truncated(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."
