"""What kubelets of different versions do with DRAResourceHealth."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dra_driver.k8s.client import Client
from dra_driver.sandbox.kubelet.health import KnownHealth
from dra_driver.sandbox.kubelet.release import RELEASES
from dra_driver.sandbox.kubelet.stand_in import StandInKubelet
from tests.sandbox.fake_dra_plugin import VERSIONS, FakePlugin
from tests.sandbox.kubelet_bed import QUICK, short_directory
from tests.sandbox.memory_api import NODE, MemoryApi

NAME = "gpu.example.com"
V1, ALPHA = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
END = object()


@pytest.fixture
def root() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


def kubelet(root: Path, release: str = "1.37") -> StandInKubelet:
    return StandInKubelet(cast("Client", MemoryApi()), NODE, root, timing=replace(QUICK, health_retry=0.01), release=release)


class Reporter(FakePlugin):
    """Sends what is put into `messages`: lists of (device, health, message, timeout), or END."""

    def __init__(self, root: Path, *health_versions: str, instance: str = "") -> None:
        super().__init__(root, NAME, instance=instance, versions=(*VERSIONS, *health_versions))
        self.messages: queue.Queue[Any] = queue.Queue()
        self.packages: list[str] = []
        self.health = self._watch

    def send(self, *devices: tuple[str, int, str, int]) -> None:
        self.messages.put(devices)

    def stop(self) -> None:
        self.messages.put(END)
        super().stop()

    def _watch(self, messages: Any) -> Iterator[Any]:
        self.packages.append(messages.DESCRIPTOR.package)
        while (devices := self.messages.get()) is not END:
            response = messages.NodeWatchResourcesResponse()
            for device, health, message, timeout in devices:
                identifier = messages.DeviceIdentifier(pool_name=NODE, device_name=device)
                response.devices.add(device=identifier, health=health, message=message, health_check_timeout_seconds=timeout)
            yield response


@pytest.mark.parametrize(
    ("release", "advertised", "package"),
    [
        ("1.34", (V1, ALPHA), ""),
        ("1.35", (V1, ALPHA), ""),
        ("1.36", (V1, ALPHA), "v1alpha1"),
        ("1.36", (), "v1alpha1"),
        ("1.37", (V1, ALPHA), "v1"),
        ("1.37", (ALPHA, V1), "v1"),
        ("1.37", (ALPHA,), "v1alpha1"),
        ("1.37", (), ""),
    ],
)
def test_which_service_is_asked(root: Path, release: str, advertised: tuple[str, ...], package: str) -> None:
    with kubelet(root, release) as node, Reporter(root, *advertised) as plugin:
        plugin.send(("a", 2, "broken", 0))
        assert node.wait_registered(NAME)
        if package:
            assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a") == KnownHealth("Unhealthy", "broken"))
            assert plugin.packages == [package]
        else:
            assert node.registry.plugin(NAME).health is None
            assert node.health.of(NAME, NODE, "a") == KnownHealth()


def test_every_supported_release_is_there() -> None:
    assert list(RELEASES) == ["1.34", "1.35", "1.36", "1.37"]


@pytest.mark.parametrize(("release", "again"), [("1.36", True), ("1.37", False)])
def test_a_method_that_is_not_implemented(root: Path, release: str, again: bool) -> None:
    plugin = FakePlugin(root, NAME, versions=(*VERSIONS, V1))
    with kubelet(root, release) as node, plugin:
        assert node.wait_registered(NAME)
        watch = node.registry.plugin(NAME).health
        assert watch is not None
        if again:
            assert node.health.wait_for(lambda: len(watch.attempts) >= 3)
        else:
            watch._thread.join(10)
            assert not watch._thread.is_alive()
            assert len(watch.attempts) == 1
        assert set(watch.attempts) == {"UNIMPLEMENTED"}


def test_lists_are_merged_and_what_is_not_mentioned_in_time_is_unknown(root: Path) -> None:
    with kubelet(root) as node, Reporter(root, V1) as plugin:
        plugin.send(("a", 1, "", 1), ("b", 1, "", 3600))
        plugin.send(("c", 0, "who knows", 3600))
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "c").message == "who knows")
        assert [node.health.of(NAME, NODE, device).health for device in "abc"] == ["Healthy", "Healthy", "Unknown"]
        for _ in range(200):
            plugin.send(("b", 2, "x" * 2000, 3600))
            if node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Unknown", 0.1):
                break
        assert node.health.of(NAME, NODE, "a") == KnownHealth()
        known = node.health.of(NAME, NODE, "b")
        assert (known.health, len(known.message), known.message[-4:]) == ("Unhealthy", 1024, "x...")


def test_the_end_of_a_stream_makes_all_unknown_and_it_is_opened_again(root: Path) -> None:
    with kubelet(root) as node, Reporter(root, V1) as plugin:
        plugin.send(("a", 1, "", 0))
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Healthy")
        plugin.messages.put(END)
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Unknown")
        plugin.send(("a", 2, "", 0))
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Unhealthy")
        watch = node.registry.plugin(NAME).health
        assert watch is not None
        assert watch.attempts == ["OK"]


def test_the_end_of_one_instance_s_stream_makes_those_of_the_other_unknown(root: Path) -> None:
    with kubelet(root) as node, Reporter(root, V1, instance="-1") as old, Reporter(root, V1, instance="-2") as new:
        assert node.registry.wait_for(lambda: len(node.registry.plugins()) == 2, 10)
        new.send(("a", 1, "", 0))
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Healthy")
        old.stop()
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Unknown")


def test_a_kubelet_ends_while_streams_are_open(root: Path) -> None:
    with Reporter(root, V1) as plugin:
        node = kubelet(root)
        node.start()
        plugin.send(("a", 1, "", 0))
        assert node.health.wait_for(lambda: node.health.of(NAME, NODE, "a").health == "Healthy")
        node.stop()
        assert node.health.of(NAME, NODE, "a") == KnownHealth()
