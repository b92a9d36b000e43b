"""Which pods get which GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.gpu_nodes import GpuNode
from e2e.kube import Kube, claim, claim_ref, pod, template
from e2e.test_one_gpu import LIST_DEVICES, claim_of


def gpus_in(kube: Kube, namespace: str, name: str, container: str | None = None) -> set[str]:
    """GPU device nodes in a container."""
    lines = kube.exec(namespace, name, "sh", "-c", LIST_DEVICES, container=container).splitlines()
    return {line.split()[0] for line in lines if line.removeprefix("nvidia")[:1].isdigit()}


def test_two_pods_get_different_gpus(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    for name in ("a", "b"):
        kube.create(pod(namespace, name, [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "a", "b")
    assert len(gpus_in(kube, namespace, "a")) == 1
    assert gpus_in(kube, namespace, "a").isdisjoint(gpus_in(kube, namespace, "b"))


def test_two_containers_of_a_pod_share_its_claim(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(claim(namespace, "shared"))
    kube.create(pod(namespace, "a", [claim_ref("gpu", claim="shared")], containers=2))
    kube.wait_running(namespace, "a")
    assert len(gpus_in(kube, namespace, "a", "c0")) == 1
    assert gpus_in(kube, namespace, "a", "c0") == gpus_in(kube, namespace, "a", "c1")


def test_two_pods_share_a_claim_and_it_stays_prepared_until_the_last_is_gone(gpu_nodes: Mapping[str, GpuNode], kube: Kube, namespace: str) -> None:
    (stored,) = kube.apply(claim(namespace, "shared"))
    uid = stored["metadata"]["uid"]
    for name in ("a", "b"):
        kube.create(pod(namespace, name, [claim_ref("gpu", claim="shared")]))
    kube.wait_running(namespace, "a", "b")
    assert gpus_in(kube, namespace, "a") == gpus_in(kube, namespace, "b")
    (node,) = [one for one in gpu_nodes.values() if uid in one.prepared_claims()]
    kube.delete("Pod", "a", namespace)
    kube.wait_gone("Pod", "a", namespace)
    assert uid in node.prepared_claims()
    assert gpus_in(kube, namespace, "b")
    kube.delete("Pod", "b", namespace)
    kube.wait_gone("Pod", "b", namespace)
    assert uid not in node.prepared_claims()


def test_a_claim_for_two_gpus_gets_two(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(claim(namespace, "two", count=2))
    kube.create(pod(namespace, "a", [claim_ref("gpus", claim="two")]))
    kube.wait_running(namespace, "a")
    assert len(gpus_in(kube, namespace, "a")) == 2


def test_nine_pods_on_eight_gpus_leave_one_pending_which_runs_when_another_ends(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    names = [f"p{number}" for number in range(9)]
    for name in names:
        kube.create(
            pod(namespace, name, [claim_ref("gpu", template="one-gpu")], node=gpu_node.name, command="until [ -e /tmp/end ]; do sleep 0.2; done")
        )
    kube.wait("eight of nine run", lambda: sum(kube.phase(namespace, name) == "Running" for name in names) == 8)
    (pending,) = [name for name in names if kube.phase(namespace, name) != "Running"]
    kube.wait("the scheduler says why", lambda: any("cannot allocate all claims" in one["message"] for one in kube.events(namespace, pending)))
    running = [name for name in names if name != pending]
    assert len({claim_of(kube, namespace, name)["status"]["allocation"]["devices"]["results"][0]["device"] for name in running}) == 8
    kube.exec(namespace, running[3], "touch", "/tmp/end")
    kube.wait_running(namespace, pending)
    assert kube.phase(namespace, running[3]) == "Succeeded"
