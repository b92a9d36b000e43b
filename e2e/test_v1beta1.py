"""The older service version: what the plugin advertises first is what the kubelet calls."""

from __future__ import annotations

from e2e.kube import Kube, claim, claim_ref, pod
from e2e.process_nodes import ProcessGpuNode


def test_v1beta1_advertised_first_serves_pods(process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str) -> None:
    node = process_nodes["node-b"]
    node.stop()
    node.flags = ("--dra-versions=v1beta1.DRAPlugin,v1.DRAPlugin",)
    try:
        node.start()
        node.wait_registered()
        kube.create(claim(namespace, "old"))
        kube.create(pod(namespace, "old", [claim_ref("gpu", claim="old")], node=node.name))
        kube.wait_running(namespace, "old")
        assert '"version": "v1beta1"' in node.log_text()
        kube.delete("Pod", "old", namespace)
        kube.wait_gone("Pod", "old", namespace)
        assert node.prepared_claims() == {}
    finally:
        node.flags = ()
        node.restart()
        node.wait_registered()
