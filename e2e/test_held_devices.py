"""A device whose old container still lives is waited for; the next pod gets it the moment it is free, and not before."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path

import pytest
from kubernetes import client

from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube, claim_ref, pod, template

SOON = 10.0  # seconds, loose: what it takes is for the bench to say


def processes_with(mark: str) -> list[int]:
    """Processes of this machine that have `mark` in their command line."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() in (directory / "cmdline").read_bytes():
                    found.append(int(directory.name))
    return found


@pytest.mark.parametrize("grace", [30])
def test_a_pod_deleted_by_force_keeps_its_gpu_until_its_container_is_dead(gpu_node: GpuNode, kube: Kube, namespace: str, grace: int) -> None:
    (first_gpu, *_) = gpu_node.devices()
    wanted = first_gpu["attributes"]["uuid"]["string"]
    kube.apply(template(namespace, "that-gpu", selectors=[f'device.attributes["gpu.nvidia.com"].uuid == "{wanted}"']))
    mark = f"stubborn-{uuid.uuid4()}"
    kube.create(
        pod(
            namespace,
            "stubborn",
            [claim_ref("gpu", template="that-gpu")],
            node=gpu_node.name,
            command=f"trap : TERM; while true; do sleep 1; done # {mark}",
            grace=grace,
        )
    )
    kube.wait_running(namespace, "stubborn")
    (held,) = gpu_node.prepared_claims()
    assert processes_with(mark)

    kube.create(pod(namespace, "next", [claim_ref("gpu", template="that-gpu")], node=gpu_node.name))
    kube.wait("the next pod waits for the GPU", lambda: kube.events(namespace, "next"))
    kube.delete("Pod", "stubborn", namespace, body=client.V1DeleteOptions(grace_period_seconds=0))
    kube.wait_gone("Pod", "stubborn", namespace)
    kube.wait("the scheduler gives the GPU away", lambda: (found := kube.get("Pod", "next", namespace)) and found["spec"].get("nodeName"))

    alive_until = time.monotonic()
    while processes_with(mark):
        alive_until = time.monotonic()
        assert list(gpu_node.prepared_claims()) == [held], "nobody else is given the GPU while the container lives"
        assert kube.phase(namespace, "next") == "Pending"
        time.sleep(0.2)
    kube.wait("the next pod runs", lambda: kube.phase(namespace, "next") == "Running", limit=SOON, about=(namespace, "next"))
    print(f"the container lived on and died; {time.monotonic() - alive_until:.1f} s later the next pod ran")
    assert not [one for one in kube.events(namespace, "next") if one["reason"] == "FailedPrepareDynamicResources"], "no round with an error"
    assert held not in gpu_node.prepared_claims()
