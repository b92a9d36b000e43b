"""`python -m bench.handover`: from the death of a container, whose pod was deleted by force, to the next pod's running on the same GPU.

The next pod is scheduled while the old container lives, since the claim is gone from the API; its prepare waits in the driver. What is measured is
what comes after: the kubelet's unprepare, our waking up, and all that the kubelet does to start a pod. For comparison: a pod on a free GPU, from its
creation to running.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from kubernetes import client

from dra_driver.errors import DraError
from e2e.cluster import Cluster
from e2e.cluster.settings import DEFAULT_STATE
from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube, claim_ref, pod, template
from e2e.process_nodes import ProcessGpuNode

RUNS = 20
GRACE = 2  # seconds that the old container has to end; it uses all of them
MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where it could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.handover", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="default: %(default)s")
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="the cluster's directory (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        cluster = Cluster.load(options.state)
        with contextlib.closing(Kube(cluster.kubeconfig, str(cluster.settings.tools / "kubectl"))) as kube:
            for name in ("rbac.yaml", "deviceclass.yaml"):
                kube.apply_file(MANIFESTS / name)
            gpu_node = ProcessGpuNode(cluster.nodes[0], cluster, kube, "h100-sxm-80gb")
            gpu_node.start()
            try:
                gpu_node.wait_published()
                gpu_node.wait_registered()
                free, handed_over = _measure(kube, gpu_node, options.runs)
            finally:
                gpu_node.stop()
    except (DraError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _show("pod on a free GPU, creation to Running", free)
    _show("death of the old container to Running", handed_over)
    return 0


def _measure(kube: Kube, gpu_node: GpuNode, runs: int) -> tuple[list[float], list[float]]:
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wanted = gpu_node.devices()[0]["attributes"]["uuid"]["string"]
    kube.apply(template(namespace, "that-gpu", selectors=[f'device.attributes["gpu.nvidia.com"].uuid == "{wanted}"']))
    claims = [claim_ref("gpu", template="that-gpu")]
    free, handed_over = [], []
    try:
        for run in range(runs):
            mark, old, new = f"stubborn-{uuid.uuid4()}", f"old-{run}", f"new-{run}"
            created = time.monotonic()
            stubborn = f"trap : TERM; while true; do sleep 1; done # {mark}"
            kube.create(pod(namespace, old, claims, node=gpu_node.name, command=stubborn, grace=GRACE))
            free.append(_until_running(kube, namespace, old) - created)
            kube.create(pod(namespace, new, claims, node=gpu_node.name))
            kube.delete("Pod", old, namespace, body=client.V1DeleteOptions(grace_period_seconds=0))
            processes = processes_with(mark)
            while any(Path(f"/proc/{pid}").exists() for pid in processes):
                time.sleep(0.005)
            died = time.monotonic()
            handed_over.append(_until_running(kube, namespace, new) - died)
            kube.delete("Pod", new, namespace)
            kube.wait_gone("Pod", new, namespace)
            kube.wait("the GPU is free", lambda: not gpu_node.prepared_claims())
    finally:
        kube.delete("Namespace", namespace)
    return free, handed_over


def _until_running(kube: Kube, namespace: str, name: str) -> float:
    while kube.phase(namespace, name) != "Running":
        time.sleep(0.01)
    return time.monotonic()


def processes_with(mark: str) -> list[int]:
    """Processes of this machine that have `mark` in their command line."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() in (directory / "cmdline").read_bytes():
                    found.append(int(directory.name))
    return found


def _show(what: str, seconds: list[float]) -> None:
    low, high = (statistics.quantiles(seconds, n=10)[index] for index in (0, -1)) if len(seconds) > 1 else (seconds[0], seconds[0])
    print(f"{what}, {len(seconds)} runs: median {statistics.median(seconds):.2f} s, 10-90 % {low:.2f}-{high:.2f} s, worst {max(seconds):.2f} s")


if __name__ == "__main__":
    sys.exit(main())
