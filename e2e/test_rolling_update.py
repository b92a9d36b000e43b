"""A new version of the node program takes over from the old one while pods come and go and the kubelet restarts in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client, watch

from e2e.gpu_nodes import DRIVER
from e2e.kube import Kube, Object
from e2e.process_nodes import ProcessGpuNode
from e2e.traffic import Traffic
from e2e.versioned_program import TAINT

PROGRAM = Path(__file__).with_name("versioned_program.py")
OLD, NEW = "1-tainted", "2"


class Version:
    """One running version of the node program, in a pod of its own as far as it can tell."""

    def __init__(self, gpu_node: ProcessGpuNode, version: str) -> None:
        self.log = gpu_node.cluster.settings.log / f"{gpu_node.name}-version-{version}-{uuid.uuid4().hex[:6]}.log"
        flags = [flag for flag in gpu_node.command()[1:] if not flag.startswith("--metrics-port")]
        command = [sys.executable, str(PROGRAM), version, *flags, f"--pod-uid={uuid.uuid4()}", "--metrics-port=0"]
        environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process: subprocess.Popen[bytes] = gpu_node.node.spawn(command, log=self.log, env=environment)

    def lines(self) -> list[dict[str, object]]:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def says(self, message: str) -> bool:
        return any(line["msg"] == message for line in self.lines())

    def complaints(self) -> list[dict[str, object]]:
        """Every answer with an error, and whatever else went wrong."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line["level"] == "error" or line["msg"] in ("claim failed", "call failed")]

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture
def start(process_nodes: dict[str, ProcessGpuNode]) -> Iterator[Callable[[str], Version]]:
    gpu_node = process_nodes["node-a"]
    gpu_node.stop()
    running: list[Version] = []

    def begin(version: str) -> Version:
        running.append(Version(gpu_node, version))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.end()
    gpu_node.start()
    gpu_node.wait_published()


class Releases:
    """The releases of the node's devices, and whether one was tainted, as they changed: one entry for each change."""

    def __init__(self, kube: Kube, node: str) -> None:
        self.seen: list[tuple[frozenset[str], bool]] = []
        self._slices: dict[str, Object] = {}
        self._watch = watch.Watch()
        self._api, self._selector = client.ResourceV1Api(kube.api), f"spec.nodeName={node},spec.driver={DRIVER}"
        threading.Thread(target=self._follow, daemon=True).start()

    def close(self) -> None:
        self._watch.stop()

    def _follow(self) -> None:
        with contextlib.suppress(Exception):  # whatever ends it early is seen in what is missing
            self._follow_until_closed()

    def _follow_until_closed(self) -> None:
        for event in self._watch.stream(self._api.list_resource_slice, field_selector=self._selector, timeout_seconds=600):
            one = event["raw_object"]
            self._slices.pop(one["metadata"]["name"], None)
            if event["type"] != "DELETED":
                self._slices[one["metadata"]["name"]] = one
            devices = [device for one in self._slices.values() for device in one["spec"].get("devices", [])]
            releases = frozenset(device["attributes"].get("release", {}).get("string", "") for device in devices)
            tainted = any(taint["key"] == TAINT for device in devices for taint in device.get("taints", []))
            if devices and (not self.seen or self.seen[-1] != (releases, tainted)):
                self.seen.append((releases, tainted))


def test_a_new_version_takes_over_while_pods_come_and_go_and_the_kubelet_restarts(
    process_nodes: dict[str, ProcessGpuNode], start: Callable[[str], Version], kube: Kube, namespace: str
) -> None:
    gpu_node = process_nodes["node-a"]
    old = start(OLD)
    kube.wait("the old version is registered", lambda: old.says("registered with the kubelet"))
    releases = Releases(kube, gpu_node.name)
    kube.wait("the old version has published", lambda: releases.seen and releases.seen[-1] == (frozenset({OLD}), True))
    releases.seen[:-1] = []
    with Traffic(kube, namespace, gpu_node.name) as traffic:
        traffic.goes_on()
        new = start(NEW)
        kube.wait("the new version has published", lambda: releases.seen[-1] == (frozenset({NEW}), False), limit=30)
        traffic.goes_on()
        assert traffic.failures() == []
        gpu_node.node.restart_kubelet()
        traffic.goes_on()
        assert old.end() == 0
        traffic.goes_on()
    releases.close()
    assert traffic.problems == []
    assert traffic.unexpected() == []
    assert old.complaints() == []
    assert new.complaints() == []
    assert releases.seen == [(frozenset({OLD}), True), (frozenset({NEW}), False)]
    print(f"{traffic.done} pods, the slowest ran after {traffic.slowest:.1f} s; around the kubelet's restart: {traffic.failures()}")
    sockets = [path.name for path in gpu_node.node.host_path("/var/lib/kubelet/plugins_registry").iterdir() if DRIVER in path.name]
    assert len(sockets) == 1
    assert gpu_node.prepared_claims() == {}
