"""A claim that is gone, and whose unprepare never comes: its GPU is freed, but not while a process has it open."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from kubernetes import client

from e2e.kube import Kube, claim_ref, pod, template
from e2e.process_nodes import ProcessGpuNode
from e2e.test_held_devices import processes_with

GRACE = 3  # seconds instead of five minutes
FULL = "1:7"  # the numbers of /dev/full: a simulated GPU that a container can open


@pytest.fixture
def sweeping(process_nodes: dict[str, ProcessGpuNode]) -> Iterator[ProcessGpuNode]:
    """A node whose first GPU can be opened, and whose program may look at its processes and does not ask the kubelet, which is to be stopped."""
    one = process_nodes["node-a"]
    plain = one.flags
    one.flags = (*plain, "--proc-mount=/proc", f"--sweep-grace={GRACE}", f"--simulate-numbers={FULL}", "--pod-resources-socket=/nonexistent")
    one.restart()
    one.wait_published()
    one.wait_registered()
    yield one
    one.node.start_kubelet()
    one.flags = plain
    one.restart()
    one.wait_registered()


def test_a_device_is_freed_only_when_no_process_has_it_open(sweeping: ProcessGpuNode, kube: Kube, namespace: str) -> None:
    wanted = sweeping.devices()[0]["attributes"]["uuid"]["string"]
    kube.apply(template(namespace, "first-gpu", selectors=[f'device.attributes["gpu.nvidia.com"].uuid == "{wanted}"']))
    mark = f"holder-{namespace}"
    command = f"exec 3< $(ls /dev/nvidia[0-9]); while true; do sleep 1; done # {mark}"
    kube.create(pod(namespace, "holder", [claim_ref("gpu", template="first-gpu")], node=sweeping.name, command=command))
    kube.wait_running(namespace, "holder")
    (held,) = sweeping.prepared_claims()
    assert processes_with(mark)

    sweeping.node.stop_kubelet()  # so nobody will unprepare the claim
    kube.delete("Pod", "holder", namespace, body=client.V1DeleteOptions(grace_period_seconds=0))
    kube.wait("the claim is gone", lambda: not kube.all("ResourceClaim", namespace))
    kube.wait("the sweep sees the process", lambda: "processes have the device of a claim open that is gone" in sweeping.log_text(), limit=60)
    time.sleep(2 * GRACE)  # more rounds
    assert list(sweeping.prepared_claims()) == [held]
    assert held in sweeping.cdi_specs()

    processes = processes_with(mark)
    assert processes
    for one in processes:
        os.kill(one, signal.SIGKILL)
    kube.wait("the GPU is freed", lambda: not sweeping.prepared_claims(), limit=60)
    assert held not in sweeping.cdi_specs()
