"""Plugins come and go as sockets in the registry directory.

A socket that appears is dialled and asked for its name (GetInfo), the answer is checked, and the plugin is told the result
(NotifyRegistrationStatus); failures are repeated with backoff. A socket that vanishes, or is replaced by another of the same name, ends the
registration. There is no unregister call.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from dra_driver.errors import ClaimRetryError, DraError
from dra_driver.kubelet._proto import plugin_registration_pb2 as messages
from dra_driver.kubelet._proto import plugin_registration_pb2_grpc as services
from dra_driver.sandbox.kubelet.calls import CallRecorder
from dra_driver.sandbox.kubelet.health import HealthCache
from dra_driver.sandbox.kubelet.plugin import SERVICES, DraPlugin, is_connected, rpc_error_text, unix_channel
from dra_driver.sandbox.kubelet.release import Release
from dra_driver.sandbox.kubelet.timing import Timing

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"

_DIAL_STEP = 0.01


class RegistrationError(DraError):
    """One attempt to register a plugin failed; it will be repeated."""

    retryable = True


@dataclass(frozen=True)
class _Socket:
    """A socket file; a new one at the same path is another plugin."""

    path: str
    inode: int
    changed: int


@dataclass
class _Backoff:
    delay: float
    until: float


class PluginRegistry:
    """The plugins of one registry directory. `reconcile` is called by one thread, the rest by any."""

    def __init__(self, directory: Path, *, recorder: CallRecorder, timing: Timing, release: Release, health: HealthCache) -> None:
        self._directory = directory
        self._recorder = recorder
        self._release = release
        self._health = health
        self._timing = timing
        self._executor = ThreadPoolExecutor(max_workers=8, thread_name_prefix="kubelet-registration")
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._registered: dict[_Socket, DraPlugin] = {}
        self._in_progress: set[_Socket] = set()
        self._backoffs: dict[str, _Backoff] = {}
        self.failures: dict[str, str] = {}
        """Why the last attempt failed, by socket path."""

    def plugin(self, driver: str) -> DraPlugin:
        """The latest connected instance, else the latest. ClaimRetryError: not registered."""
        with self._changed:
            instances = [plugin for plugin in self._registered.values() if plugin.driver == driver]
        if not instances:
            raise ClaimRetryError(f"DRA driver {driver} is not registered" if driver else "DRA driver name is empty")
        return next((plugin for plugin in reversed(instances) if plugin.connected), instances[-1])

    def plugins(self) -> list[DraPlugin]:
        """All registered instances, oldest first."""
        with self._changed:
            return list(self._registered.values())

    def is_registered(self, driver: str) -> bool:
        """Whether an instance of the driver is connected and was told that it is accepted."""
        with self._changed:
            return any(
                plugin.driver == driver and plugin.connected and socket not in self._in_progress for socket, plugin in self._registered.items()
            )

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Waits until `condition` holds; it is asked again after every change of the plugins, their connections and `failures`."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def reconcile(self) -> None:
        """Compares the directory with the registrations: removes those whose socket is gone, tries those that are new or due again."""
        present = set(self._sockets())
        with self._changed:
            known = set(self._registered)
            unknown = present - known - self._in_progress
        for socket in known - present:
            self._deregister(socket)
        for socket in sorted(unknown, key=lambda socket: socket.changed):
            backoff = self._backoffs.get(socket.path)
            if backoff is None or time.monotonic() >= backoff.until:
                with self._changed:
                    self._in_progress.add(socket)
                self._executor.submit(self._attempt, socket)
        with self._changed:
            for plugin in self._registered.values():
                if plugin.look():
                    self._changed.notify_all()

    def close(self) -> None:
        """Lets go of all plugins without a word to them, as a kubelet that ends."""
        self._closing.set()
        self._executor.shutdown(wait=True, cancel_futures=True)
        with self._changed:
            for plugin in self._registered.values():
                plugin.close()
            self._registered.clear()
            self._changed.notify_all()

    def _sockets(self) -> Iterator[_Socket]:
        for root, _, names in os.walk(self._directory):
            for name in names:
                if name.startswith("."):
                    continue
                path = os.path.join(root, name)  # noqa: PTH118 - the path is a key and goes into texts
                try:
                    status = os.lstat(path)
                except FileNotFoundError:
                    continue
                if stat.S_ISSOCK(status.st_mode):
                    yield _Socket(path, status.st_ino, status.st_ctime_ns)

    def _attempt(self, socket: _Socket) -> None:
        failure = ""
        try:
            self._register(socket)
        except RegistrationError as error:
            failure = str(error)
            log.info("registration failed", extra={"socket": socket.path, "error": failure})
        except Exception as error:
            failure = f"RegisterPlugin error -- {type(error).__name__}: {error}"
            log.exception("registration failed", extra={"socket": socket.path})
        finally:
            with self._changed:
                self._in_progress.discard(socket)
                if failure:
                    self.failures[socket.path] = failure
                    self._back_off(socket.path)
                else:
                    self.failures.pop(socket.path, None)
                    self._backoffs.pop(socket.path, None)
                self._changed.notify_all()

    def _back_off(self, path: str) -> None:
        last = self._backoffs.get(path)
        delay = min(last.delay * 2, self._timing.backoff_limit) if last else self._timing.backoff
        self._backoffs[path] = _Backoff(delay, time.monotonic() + delay)

    def _register(self, socket: _Socket) -> None:
        with unix_channel(socket.path) as channel:
            self._dial(channel, socket)
            registration = services.RegistrationStub(grpc.intercept_channel(channel, self._recorder))
            try:
                info = registration.GetInfo(messages.InfoRequest(), timeout=self._timing.get_info)
            except grpc.RpcError as error:
                text = f"failed to get plugin info using RPC GetInfo at socket {socket.path}, err: {rpc_error_text(error)}"
                raise RegistrationError(f"RegisterPlugin error -- {text}") from error
            try:
                service = self._validated(info, socket.path)
                self._add(socket, info, service)
            except RegistrationError as error:
                self._notify(registration, socket, str(error))
                raise
            try:
                self._notify(registration, socket, "")
            except Exception:
                self._deregister(socket)
                raise

    def _dial(self, channel: grpc.Channel, socket: _Socket) -> None:
        deadline = time.monotonic() + self._timing.dial
        while not is_connected(channel):
            if time.monotonic() >= deadline or self._closing.wait(_DIAL_STEP):
                raise RegistrationError(f"RegisterPlugin error -- dial failed at socket {socket.path}, err: context deadline exceeded")

    def _validated(self, info: messages.PluginInfo, path: str) -> str:
        if info.type != PLUGIN_TYPE:
            raise RegistrationError(f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}")
        service = next((version for version in info.supported_versions if version in SERVICES), None)
        if service:
            return service
        if info.supported_versions:
            offered, known = _quoted(info.supported_versions), _quoted(list(SERVICES))
            reason = f"none of services supported by the plugin ({offered}) are supported by the kubelet ({known})"
        else:
            reason = "empty list of supported gRPC services (aka supported versions)"
        where = f"invalid supported gRPC versions of DRA driver plugin {info.name} at endpoint {info.endpoint or path}"
        raise RegistrationError(f"RegisterPlugin error -- plugin validation failed with err: {where}: {reason}")

    def _add(self, socket: _Socket, info: messages.PluginInfo, service: str) -> None:
        endpoint = info.endpoint or socket.path
        with self._changed:
            if any(plugin.driver == info.name and plugin.endpoint == endpoint for plugin in self._registered.values()):
                reason = f"endpoint {endpoint} already registered for DRA driver plugin {info.name}"
                raise RegistrationError(f"RegisterPlugin error -- plugin registration failed with err: {reason}")
            plugin = DraPlugin(info.name, endpoint, service, recorder=self._recorder, timeout=self._timing.call)
            if health_service := self._release.health_service(info.supported_versions):
                plugin.watch_health(health_service, self._health, release=self._release, timing=self._timing)
            plugin.look()
            self._registered[socket] = plugin
        log.info("plugin registered", extra={"driver": info.name, "endpoint": endpoint, "service": service})

    def _notify(self, registration: services.RegistrationStub, socket: _Socket, failure: str) -> None:
        status = messages.RegistrationStatus(plugin_registered=not failure, error=failure)
        try:
            registration.NotifyRegistrationStatus(status, timeout=self._timing.notify)
        except grpc.RpcError as error:
            text = f"failed to send registration status at socket {socket.path}, err: {failure}: {rpc_error_text(error)}"
            raise RegistrationError(f"RegisterPlugin error -- {text}") from error

    def _deregister(self, socket: _Socket) -> None:
        with self._changed:
            plugin = self._registered.pop(socket, None)
            self._changed.notify_all()
        if plugin:
            plugin.close()
            log.info("plugin deregistered", extra={"driver": plugin.driver, "endpoint": plugin.endpoint})


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(f'"{text}"' for text in texts) + "]"
