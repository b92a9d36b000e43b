"""Nothing is lost when the kubelet or the node program ends, between calls or in the middle of one."""

from __future__ import annotations

import signal

import pytest

from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube, claim_ref, pod, template
from e2e.process_nodes import ProcessGpuNode
from e2e.test_sharing import gpus_in

SIGNALS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture
def running_pod(gpu_node: GpuNode, kube: Kube, namespace: str) -> str:
    kube.apply(template(namespace, "one-gpu"))
    kube.create(pod(namespace, "before", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "before")
    return "before"


def assert_pods_come_and_go(gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str) -> None:
    """The old pod keeps its GPU, a new one gets another, and both can be deleted."""
    kube.create(pod(namespace, "after", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "after", running_pod)
    assert gpus_in(kube, namespace, "after").isdisjoint(gpus_in(kube, namespace, running_pod))
    for name in ("after", running_pod):
        kube.delete("Pod", name, namespace)
    for name in ("after", running_pod):
        kube.wait_gone("Pod", name, namespace)
    assert gpu_node.prepared_claims() == {}
    assert gpu_node.cdi_specs() == {}


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_node_program_restarts_between_calls(gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str, number: signal.Signals) -> None:
    held = gpu_node.prepared_claims()
    gpu_node.restart(number)
    gpu_node.wait_registered()
    assert gpu_node.prepared_claims() == held
    assert_pods_come_and_go(gpu_node, kube, namespace, running_pod)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_node_program_ends_in_the_middle_of_a_prepare(
    gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str, number: signal.Signals
) -> None:
    # Stopped, it accepts the kubelet's call and does not answer; so the call is under way when the process ends.
    gpu_node.send_signal(signal.SIGSTOP)
    kube.create(pod(namespace, "during", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait("the pod is bound", lambda: (found := kube.get("Pod", "during", namespace)) and found["spec"].get("nodeName"))
    kube.wait("the kubelet has begun with the pod", lambda: (found := kube.get("Pod", "during", namespace)) and found["status"].get("startTime"))
    gpu_node.restart(number)
    gpu_node.wait_registered()
    kube.wait_running_after_a_failure(namespace, "during")
    assert_pods_come_and_go_with(gpu_node, kube, namespace, running_pod, "during")


def assert_pods_come_and_go_with(gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str, other: str) -> None:
    assert gpus_in(kube, namespace, other).isdisjoint(gpus_in(kube, namespace, running_pod))
    kube.delete("Pod", other, namespace)
    kube.wait_gone("Pod", other, namespace)
    assert_pods_come_and_go(gpu_node, kube, namespace, running_pod)


def test_the_kubelet_restarts_between_calls(gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str) -> None:
    gpu_node.node.restart_kubelet()
    assert_pods_come_and_go(gpu_node, kube, namespace, running_pod)


def test_the_kubelet_restarts_in_the_middle_of_a_prepare(gpu_node: GpuNode, kube: Kube, namespace: str, running_pod: str) -> None:
    gpu_node.send_signal(signal.SIGSTOP)
    kube.create(pod(namespace, "during", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait("the kubelet has begun with the pod", lambda: (found := kube.get("Pod", "during", namespace)) and found["status"].get("startTime"))
    gpu_node.node.restart_kubelet()
    gpu_node.send_signal(signal.SIGCONT)
    kube.wait_running_after_a_failure(namespace, "during")
    assert_pods_come_and_go_with(gpu_node, kube, namespace, running_pod, "during")


def test_a_pod_deleted_while_the_node_program_is_down_is_unprepared_when_it_is_back(
    process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str, running_pod: str
) -> None:
    gpu_node = process_nodes["node-a"]
    gpu_node.stop(signal.SIGKILL)
    kube.delete("Pod", running_pod, namespace)
    gpu_node.start()
    kube.wait_gone("Pod", running_pod, namespace)
    kube.wait("the claim is unprepared", lambda: not gpu_node.prepared_claims() and not gpu_node.cdi_specs())
