"""The journal of the node program is lost while a pod runs: the pod keeps its GPU, and nobody else gets it."""

from __future__ import annotations

import signal

import pytest

from dra_driver.kubelet.pod_resources import claims_of_pods
from e2e.gpu_nodes import DRIVER, PLUGIN_DIR
from e2e.kube import Kube, claim, claim_ref, pod, template
from e2e.process_nodes import ProcessGpuNode
from e2e.test_bad_claims import run_with_a_bad_allocation
from e2e.test_one_gpu import claim_of
from e2e.test_sharing import gpus_in


@pytest.mark.parametrize("specs", [True, False], ids=["with CDI specs", "CDI specs lost as well"])
def test_a_gpu_in_use_is_given_to_nobody_else_when_the_journal_was_damaged(
    process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str, specs: bool
) -> None:
    gpu_node = process_nodes["node-a"]
    kube.apply(template(namespace, "one-gpu"))
    kube.create(pod(namespace, "first", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "first")
    held = claim_of(kube, namespace, "first")
    (result,) = held["status"]["allocation"]["devices"]["results"]
    (told,) = claims_of_pods(gpu_node.node.host_path("/var/lib/kubelet/pod-resources/kubelet.sock"), DRIVER)
    assert (told.namespace, told.name) == (namespace, held["metadata"]["name"]), "the real kubelet tells"
    assert [(one.pool, one.device) for one in told.results] == [(result["pool"], result["device"])]
    prepared, files = gpu_node.prepared_claims(), gpu_node.cdi_specs()
    contents = {uid: path.read_bytes() for uid, path in files.items()}
    assert prepared == {held["metadata"]["uid"]: [result["device"]]}

    gpu_node.stop(signal.SIGKILL)
    journal = gpu_node.node.host_path(f"{PLUGIN_DIR}/state.db")
    for path in journal.parent.glob("state.db*"):  # the -wal as well: SQLite makes the rest good from it
        path.write_bytes(b"garbage" * 1000)
    if not specs:
        for path in files.values():
            path.unlink()
    gpu_node.start()
    gpu_node.wait_registered()
    assert gpu_node.prepared_claims() == prepared
    assert {uid: path.read_bytes() for uid, path in gpu_node.cdi_specs().items()} == contents
    assert list(journal.parent.glob("state.db.damaged-*Z"))
    assert '"the journal is damaged' in gpu_node.log_text()

    kube.create(claim(namespace, "other"))
    second = pod(namespace, "second", [claim_ref("gpu", claim="other")], node=gpu_node.name)
    run_with_a_bad_allocation(kube, second, "other", gpu_node.name, pool=result["pool"], device=result["device"])
    holder = f"still prepared for claim {namespace}/{held['metadata']['name']}"
    kube.wait(
        "the second pod is refused",
        lambda: any(one["reason"] == "FailedPrepareDynamicResources" and holder in one["message"] for one in kube.events(namespace, "second")),
        about=(namespace, "second"),
    )
    gpus = gpus_in(kube, namespace, "first")
    assert len(gpus) == 1

    kube.delete("Pod", "first", namespace)
    kube.wait_gone("Pod", "first", namespace)
    kube.wait_running_after_a_failure(namespace, "second")
    assert gpus_in(kube, namespace, "second") == gpus
    kube.delete("Pod", "second", namespace)
    kube.wait_gone("Pod", "second", namespace)
    assert gpu_node.prepared_claims() == {}
    assert gpu_node.cdi_specs() == {}
