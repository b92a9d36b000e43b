"""The chart on a real API server: accepted as it is, and what it grants and what it forbids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kubernetes import client

from e2e.cluster import driver_image
from e2e.gpu_nodes import ACCOUNT, DRIVER, NAMESPACE, GpuNode
from e2e.kube import Kube, Object, claim_ref, pod, template
from e2e.pod_nodes import CHART, RELEASE, Chart, PodGpuNode
from e2e.traffic import Traffic

VALUES = {
    "defaults": [],
    "simulated": ["simulated.enabled=true", "simulated.gpus=2"],
    "all optional parts": [
        "nvidiaDriverRoot=/run/nvidia/driver",
        "fullnameOverride=gpus",
        "node.serviceAccount.name=somebody",
        "node.nodeSelector.pool=gpu",
        "imagePullSecrets[0].name=registry",
        "controller.priorityClassName=system-cluster-critical",
        "node.podLabels.team=ml",
    ],
    "least": ["controller.enabled=false", "admissionPolicy.enabled=false", "deviceClass.extendedResourceName=", "node.serviceAccount.create=false"],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_the_api_server_takes_what_helm_renders(chart: Chart, kube: Kube, gpu_nodes: Mapping[str, GpuNode], values: list[str]) -> None:
    rendered = chart.helm("template", "other", str(CHART), f"--namespace={NAMESPACE}", *(f"--set={value}" for value in values))
    answer = kube.kubectl("apply", "--dry-run=server", "--filename=-", stdin=rendered)
    assert "daemonset.apps/" in answer
    assert "Warning" not in answer


@pytest.fixture
def as_node_a(chart: Chart, kube: Kube, gpu_nodes: Mapping[str, GpuNode]) -> Any:
    """The API as the node program of node-a sees it: with a token bound to its pod."""
    node = gpu_nodes["node-a"]
    assert isinstance(node, PodGpuNode)
    return slices_api(kube, kube.token(NAMESPACE, ACCOUNT, bound_to={**node.pod, "kind": "Pod"}))


def slices_api(kube: Kube, token: str) -> Any:
    configuration = client.Configuration()
    configuration.host, configuration.ssl_ca_cert = kube.api.configuration.host, kube.api.configuration.ssl_ca_cert
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return client.ResourceV1Api(client.ApiClient(configuration))


def a_slice(driver: str = DRIVER, **where: object) -> Object:
    spec = {"driver": driver, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}], **where}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"generateName": "e2e-"}, "spec": spec}


GPU_NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}


def test_a_node_program_may_write_a_slice_of_its_own_node(as_node_a: Any) -> None:
    as_node_a.create_resource_slice(a_slice(nodeName="node-a"), dry_run="All")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        pytest.param(a_slice(nodeName="node-b"), "the node program of node-a may write the ResourceSlices of its own node only", id="another node"),
        pytest.param(a_slice(allNodes=True), "of its own node only", id="all nodes"),
        pytest.param(a_slice(nodeSelector=GPU_NODES), "of its own node only", id="nodes of a selector"),
        pytest.param(a_slice("nic.example.com", nodeName="node-a"), "of the driver gpu.nvidia.com only", id="another driver"),
    ],
)
def test_a_node_program_may_create_no_other_slice(as_node_a: Any, wanted: Object, reason: str) -> None:
    with pytest.raises(client.ApiException, match=reason):
        as_node_a.create_resource_slice(wanted, dry_run="All")


def test_a_node_program_may_neither_change_nor_delete_the_slices_of_another_node(as_node_a: Any, gpu_nodes: Mapping[str, GpuNode]) -> None:
    (foreign,) = gpu_nodes["node-b"].slices()
    name = foreign["metadata"]["name"]
    foreign["spec"]["devices"] = []
    with pytest.raises(client.ApiException, match="of its own node only"):
        as_node_a.replace_resource_slice(name, foreign, dry_run="All")
    with pytest.raises(client.ApiException, match="of its own node only"):
        as_node_a.delete_resource_slice(name, dry_run="All")


def test_a_token_that_is_bound_to_no_node_writes_no_slice(chart: Chart, kube: Kube, gpu_nodes: Mapping[str, GpuNode]) -> None:
    unbound = slices_api(kube, kube.token(NAMESPACE, ACCOUNT))
    with pytest.raises(client.ApiException, match="this token is bound to no node"):
        unbound.create_resource_slice(a_slice(nodeName="node-a"), dry_run="All")


def test_a_rolling_update_of_the_node_program_disturbs_no_pod(chart: Chart, gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    assert isinstance(gpu_node, PodGpuNode)
    kube.apply(template(namespace, "one-gpu"))
    kube.create(pod(namespace, "before", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "before")
    held, old = gpu_node.prepared_claims(), gpu_node.pod["metadata"]["name"]
    versions = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in gpu_node.slices()}
    with Traffic(kube, namespace, gpu_node.name, workers=2) as traffic:
        traffic.goes_on(2)
        kube.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", f"daemonset/{RELEASE}-node")
        kube.kubectl("rollout", "status", f"--namespace={NAMESPACE}", f"daemonset/{RELEASE}-node")
        assert gpu_node.pod["metadata"]["name"] != old
        gpu_node.wait_registered()
        traffic.goes_on(2)
    assert traffic.problems == []
    assert traffic.failures() == []
    assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in gpu_node.slices()} == versions, "the same content"
    assert gpu_node.prepared_claims() == held
    assert kube.phase(namespace, "before") == "Running"
    kube.delete("Pod", "before", namespace)
    kube.wait_gone("Pod", "before", namespace)
    assert gpu_node.prepared_claims() == {}


def test_the_node_program_answers_to_its_probes_and_sees_the_processes_of_its_node(chart: Chart, gpu_node: GpuNode, kube: Kube) -> None:
    assert isinstance(gpu_node, PodGpuNode)
    name = gpu_node.pod["metadata"]["name"]
    proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy"
    assert "registration: ok" in kube.kubectl("get", f"--raw={proxy}/readyz")
    assert "dra_driver_leads 1.0" in kube.kubectl("get", f"--raw={proxy}/metrics")
    assert "sockets: ok" in kube.kubectl("get", f"--raw={proxy}/healthz")
    found = kube.exec(NAMESPACE, name, "sh", "-c", "cat /host-proc/[0-9]*/comm")
    assert {"kubelet", "containerd"} <= set(found.split())


def test_cdi_specs_name_the_host_s_paths_and_not_the_pod_s(chart: Chart, gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    kube.create(pod(namespace, "a", [claim_ref("gpu", template="one-gpu")], node=gpu_node.name))
    kube.wait_running(namespace, "a")
    (spec,) = (path.read_text() for path in gpu_node.cdi_specs().values())
    assert '"hostPath":"/run/nvidia/driver-simulated/dev/nvidia' in spec.replace(" ", "")
    assert "/driver-root" not in spec


def test_the_controller_is_ready_and_answers_to_the_probes(chart: Chart, gpu_nodes: Mapping[str, GpuNode], kube: Kube) -> None:
    (one,) = chart.pods("controller")
    proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/{one['metadata']['name']}:8080/proxy"
    for path in ("healthz", "readyz", "metrics"):
        assert kube.kubectl("get", f"--raw={proxy}/{path}"), path


def test_on_a_node_without_a_driver_the_log_says_what_is_missing(chart: Chart, kube: Kube, gpu_nodes: Mapping[str, GpuNode]) -> None:
    values = [
        "fullnameOverride=real",
        "nvidiaDriverRoot=/run/nvidia/none",
        "kubeletDir=/run/real",  # the release's node program has the kubelet's own
        "node.nodeSelector.kubernetes\\.io/hostname=node-b",
        f"image.repository={driver_image.REPOSITORY}",
        f"image.tag={driver_image.TAG}",
    ]
    flags = [f"--namespace={NAMESPACE}", "--show-only=templates/node.yaml", "--set-json=node.affinity={}", *(f"--set={value}" for value in values)]
    rendered = chart.helm("template", "real", str(CHART), *flags)
    kube.kubectl("apply", "--filename=-", stdin=rendered)
    try:
        found = kube.wait("the pod is there", lambda: kube.all("Pod", NAMESPACE, label_selector="app.kubernetes.io/instance=real"))
        name = found[0]["metadata"]["name"]
        kube.wait(
            "it has ended once", lambda: any("terminated" in one["lastState"] for one in container_statuses(kube, name)), about=(NAMESPACE, name)
        )
        log = kube.kubectl("logs", f"--namespace={NAMESPACE}", "--previous", name)
        assert '"cannot start"' in log
        assert "found no libnvidia-ml.so.1" in log
        assert not chart.cluster.node("node-b").host_path("/dev/termination-log").exists()
    finally:
        kube.kubectl("delete", "--filename=-", "--wait", stdin=rendered)


def container_statuses(kube: Kube, name: str) -> list[Object]:
    found = kube.get("Pod", name, NAMESPACE)
    return found["status"].get("containerStatuses") or [] if found else []
