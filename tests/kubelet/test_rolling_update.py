"""One instance takes over from another while pods come and go: nobody notices."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from dra_driver.errors import ClaimRetryError, DraError
from dra_driver.k8s.client import Client
from dra_driver.k8s.objects.resource import RESOURCE_CLAIMS, RESOURCE_SLICES, Device, DeviceAttribute, DeviceTaint, ResourceSlice
from dra_driver.k8s.reflector import Reflector
from dra_driver.kubelet.plugin import KubeletPlugin, PluginPaths
from dra_driver.sandbox.apiserver import ApiServer
from dra_driver.sandbox.kubelet.plugin import ClaimReference
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from tests.kubelet.test_presence import until
from tests.kubelet.toy import DRIVER, NODE, ToyDriver, allocated, result

LIMIT = 20.0
AROUND_A_RESTART = ("is not registered", "code = Canceled", "code = Cancelled", "code = Unavailable")  # of the kubelet itself


@pytest.fixture
def kubelet(client: Client, short: Path) -> Iterator[StandInKubelet]:
    with StandInKubelet(client, NODE, short) as one:
        yield one


class Answers(grpc.ServerInterceptor):
    """What an instance answered: the texts of all errors, and how many calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors: list[str] = []

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if not details.method.endswith(("prepareResources", "PrepareResources")):
            return handler

        def method(request: Any, context: Any) -> Any:
            try:
                response = handler.unary_unary(request, context)
            except Exception as error:
                self.errors.append(f"{details.method}: {error!r}")
                raise
            self.calls += bool(request.claims)
            if context.is_active():  # else the kubelet has cancelled the call and nobody reads this
                self.errors += [one.error for one in response.claims.values() if one.error]
            return response

        return grpc.unary_unary_rpc_method_handler(method, handler.request_deserializer, handler.response_serializer)


class Bed:
    """Instances of the driver; those of different versions differ in one attribute and one taint."""

    def __init__(self, api: ApiServer, short: Path) -> None:
        self._api = api
        self._paths = PluginPaths(short / "plugins" / DRIVER, short / "plugins_registry", short / "cdi")
        self._numbers = itertools.count()
        self.answers = Answers()
        self.running: list[KubeletPlugin] = []

    def start(self, version: str) -> KubeletPlugin:
        uid = f"0f3b1a1e-93a6-4c5d-8a34-{next(self._numbers):012d}"
        plugin = KubeletPlugin(
            ToyDriver(), Client(self._api.connection, "plugin"), node=NODE, paths=self._paths, instance=uid, interceptors=[self.answers]
        )
        taints = [DeviceTaint(key="toy.example.com/old", effect="NoSchedule")] if version == "1" else []
        attributes = {"version": DeviceAttribute(string=version)}
        plugin.publisher.set_devices([Device(name=f"toy-{number}", attributes=attributes, taints=taints) for number in range(8)])
        plugin.start()
        self.running.append(plugin)
        return plugin

    def stop(self, plugin: KubeletPlugin) -> None:
        self.running.remove(plugin)
        plugin.stop()


@pytest.fixture
def bed(api: ApiServer, short: Path, kubelet: StandInKubelet) -> Iterator[Bed]:
    one = Bed(api, short)
    yield one
    for plugin in list(one.running):
        one.stop(plugin)


def ready(plugin: KubeletPlugin) -> None:
    until(lambda: plugin.probes.readiness().good)


class Traffic:
    """Claims that are prepared and unprepared without a pause, each worker on a device of its own."""

    def __init__(self, kubelet: StandInKubelet, client: Client, workers: int = 3) -> None:
        self._kubelet, self._client = kubelet, client
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(workers)]
        self._turns = [0] * workers
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive()

    def goes_on(self, times: int = 3) -> None:
        """Until each worker has done that many claims more, 2 at least: then no call is left that chose its instance before this was called.

        A kubelet that has chosen an instance and lets go of it before it calls cancels its own call; no driver can help that.
        """
        goals = [done + max(2, times) for done in self._turns]
        until(lambda: all(done >= goal for done, goal in zip(self._turns, goals, strict=True)))

    def _work(self, number: int) -> None:
        for turn in itertools.count():
            if self._end.is_set():
                return
            key = allocated(self._client, f"c-{number}-{turn}", result(f"toy-{number}"))
            reference = ClaimReference(key.namespace, key.name, key.uid)
            self._until_done(lambda reference=reference: self._kubelet.registry.plugin(DRIVER).prepare([reference]))  # type: ignore[misc]
            self._until_done(lambda reference=reference: self._kubelet.registry.plugin(DRIVER).unprepare([reference]))  # type: ignore[misc]
            self._client.delete(RESOURCE_CLAIMS, key.name, key.namespace)
            self._turns[number] += 1

    def _until_done(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except ClaimRetryError as error:
                self.failures.append(str(error))
                self._end.wait(0.02)
                if len(self.failures) > 1000:
                    return
            else:
                return


@contextlib.contextmanager
def observed(client: Client) -> Iterator[list[set[str]]]:
    """The versions that the node's slices had, one set for each change."""
    seen: list[set[str]] = []
    slices: dict[str, ResourceSlice] = {}

    def changed(old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]
        if new is None:
            slices.pop(name, None)
        else:
            slices[name] = new
        versions = {str(device.attributes["version"].string) for one in slices.values() for device in one.spec.devices}
        if versions and (not seen or seen[-1] != versions):
            seen.append(versions)

    stop = threading.Event()
    reflector = Reflector(client, RESOURCE_SLICES, changed)
    thread = threading.Thread(target=reflector.run, args=(stop,), daemon=True)
    thread.start()
    assert reflector.synced.wait(LIMIT)
    yield seen
    stop.set()
    thread.join(LIMIT)


def test_a_new_version_takes_over_without_an_error_and_slices_change_once(bed: Bed, kubelet: StandInKubelet, client: Client) -> None:
    old = bed.start("1")
    ready(old)
    with observed(client) as versions, Traffic(kubelet, client) as traffic:
        traffic.goes_on()
        new = bed.start("2")
        ready(new)
        assert (old.leads(), new.leads()) == (False, True)
        assert old.probes.readiness().good
        traffic.goes_on()
        bed.stop(old)
        traffic.goes_on()
    assert traffic.failures == []
    assert bed.answers.errors == []
    assert versions == [{"1"}, {"2"}]
    assert {device.name for one in client.list(RESOURCE_SLICES).items for device in one.spec.devices if device.taints} == set()


def test_a_kubelet_that_restarts_in_the_middle_changes_nothing(bed: Bed, kubelet: StandInKubelet, client: Client) -> None:
    old = bed.start("1")
    ready(old)
    with observed(client) as versions, Traffic(kubelet, client) as traffic:
        traffic.goes_on()
        new = bed.start("2")
        ready(new)
        for _ in range(3):  # it registers the two in any order
            kubelet.restart()
            traffic.goes_on()
            assert kubelet.registry.wait_for(lambda: len([one for one in kubelet.registry.plugins() if one.connected]) == 2, LIMIT)
            assert (old.leads(), new.leads()) == (False, True)
        bed.stop(old)
        traffic.goes_on()
    assert [text for text in traffic.failures if not any(known in text for known in AROUND_A_RESTART)] == []
    assert bed.answers.errors == []
    assert versions == [{"1"}, {"2"}]


def test_a_new_version_that_is_taken_back_gives_the_lease_back(bed: Bed, kubelet: StandInKubelet, client: Client) -> None:
    old = bed.start("1")
    ready(old)
    with observed(client) as versions, Traffic(kubelet, client) as traffic:
        new = bed.start("2")
        ready(new)
        until(lambda: versions[-1] == {"2"})
        bed.stop(new)
        until(lambda: versions[-1] == {"1"})
        assert old.leads()
        traffic.goes_on()
    # The kubelet prefers the one that was registered last, and cancels what runs there when it lets go of it.
    assert [text for text in traffic.failures if not any(known in text for known in AROUND_A_RESTART)] == []
    assert bed.answers.errors == []
    assert versions == [{"1"}, {"2"}, {"1"}]


def test_a_new_version_that_the_kubelet_refuses_publishes_nothing(bed: Bed, kubelet: StandInKubelet, client: Client) -> None:
    old = bed.start("1")
    ready(old)
    with observed(client) as versions:
        uid = "refused"
        new = KubeletPlugin(ToyDriver(), Client(bed._api.connection, "plugin"), node=NODE, paths=bed._paths, instance=uid)
        new.registrar._info.supported_versions[:] = ["v9.DRAPlugin"]
        new.publisher.set_devices([Device(name="toy-0", attributes={"version": DeviceAttribute(string="2")})])
        new.start()
        bed.running.append(new)
        until(lambda: "none of services supported" in new.probes.readiness().text)
        new.publisher.wake()
        assert not new.publisher.published.wait(0.3)
        assert old.leads()
    assert versions == [{"1"}]


def test_twenty_updates_in_a_row_cost_no_call(bed: Bed, kubelet: StandInKubelet, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    current = bed.start("0")
    ready(current)
    with observed(client) as versions, Traffic(kubelet, client, workers=1) as traffic:
        for number in range(1, 21):
            following = bed.start(str(number + 1))
            ready(following)
            endpoint = str(following.instance.sockets.service)
            until(lambda endpoint=endpoint: kubelet.registry.plugin(DRIVER).endpoint == endpoint)  # type: ignore[misc]
            traffic.goes_on()
            bed.stop(current)
            current = following
    assert traffic.failures == []
    assert bed.answers.errors == []
    assert len(versions) == 21
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert {path.name for path in bed._paths.registry.iterdir()} == {current.instance.sockets.registrar.name}


def test_the_same_pod_uid_twice_is_refused(bed: Bed, kubelet: StandInKubelet) -> None:
    first = bed.start("1")
    second = KubeletPlugin(ToyDriver(), Client(bed._api.connection, "plugin"), node=NODE, paths=bed._paths, instance=first.instance.uid)
    with pytest.raises(DraError, match="is alive already"):
        second.start()
    ready(first)
    assert kubelet.registry.plugin(DRIVER).prepare([]) == {}
