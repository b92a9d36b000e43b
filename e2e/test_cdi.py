"""What containers get of their devices, also when the host changes under them: CDI specs and device metadata, as the real containerd reads them."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.gpu_nodes import DRIVER, GpuNode
from e2e.kube import Kube, Object, claim, claim_ref, pod, template
from e2e.process_nodes import DRIVER_ROOT, ProcessGpuNode
from e2e.test_one_gpu import claim_of
from e2e.test_sharing import gpus_in

METADATA = "/var/run/kubernetes.io/dra-device-attributes"
FILE = f"{DRIVER}-metadata.json"
LIBRARIES, OTHER_LIBRARIES = "usr/lib/x86_64-linux-gnu", "usr/lib64"


def lasting_pod(namespace: str, name: str, claims: list[Object], node: str) -> Object:
    """A pod whose container is started again when it ends."""
    one = pod(namespace, name, claims, node=node)
    one["spec"]["restartPolicy"] = "Always"
    return one


def kill_container(node: GpuNode, kube: Kube, namespace: str, name: str) -> None:
    """As the OOM killer would; returns when the kubelet has started another one."""

    def status() -> Any:
        found = kube.get("Pod", name, namespace)
        assert found is not None
        return found["status"]["containerStatuses"][0]

    before = status()
    container = before["containerID"].removeprefix("containerd://")
    ctr = str(node.cluster.settings.tools / "ctr")
    node.node.exec([ctr, "--namespace=k8s.io", "tasks", "kill", f"--signal={signal.SIGKILL.value}", container], check=True)
    kube.wait(
        "the container runs again",
        lambda: (now := status()) and now["restartCount"] > before["restartCount"] and "running" in now["state"],
        about=(namespace, name),
    )


def spec_of(node: GpuNode, kube: Kube, namespace: str, name: str) -> Any:
    """The CDI spec of a pod's only claim."""
    return json.loads(node.cdi_specs()[claim_of(kube, namespace, name)["metadata"]["uid"]].read_text())


def test_containers_read_what_their_gpus_are(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    alternatives = claim(namespace, "alternatives")
    wish = {
        "deviceClassName": "gpu.nvidia.com",
        "selectors": [{"cel": {"expression": f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('1Ti'))"}}],
    }
    alternatives["spec"]["devices"]["requests"] = [
        {"name": "any", "firstAvailable": [{"name": "huge", **wish}, {"name": "plain", "deviceClassName": "gpu.nvidia.com"}]}
    ]
    kube.create(alternatives)
    claims = [claim_ref("made", template="one-gpu"), claim_ref("named", claim="alternatives")]
    kube.create(pod(namespace, "reader", claims, node=gpu_node.name))
    kube.wait_running(namespace, "reader")
    assert len(gpus_in(kube, namespace, "reader")) == 2
    for path, request in ((f"resourceclaimtemplates/made/gpu/{FILE}", "gpu"), (f"resourceclaims/alternatives/any/{FILE}", "any/plain")):
        versions = [json.loads(line) for line in kube.exec(namespace, "reader", "cat", f"{METADATA}/{path}").splitlines()]
        assert [one["apiVersion"] for one in versions] == ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"]
        (told,) = versions[0]["requests"]
        assert told["name"] == request
        (device,) = told["devices"]
        published = next(one for one in gpu_node.devices() if one["name"] == device["name"])
        assert device["attributes"] == published["attributes"]
        assert "resource.kubernetes.io/pciBusID" in device["attributes"]
    kube.delete("Pod", "reader", namespace)
    kube.wait_gone("Pod", "reader", namespace)
    assert list(gpu_node.node.host_path("/var/run/cdi").glob(f"{DRIVER}-metadata/*")) == []


def test_a_container_that_is_killed_restarts_with_its_gpu_after_the_cdi_directory_was_emptied(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.apply(template(namespace, "one-gpu"))
    kube.create(lasting_pod(namespace, "lasting", [claim_ref("gpu", template="one-gpu")], gpu_node.name))
    kube.wait_running(namespace, "lasting")
    before = gpus_in(kube, namespace, "lasting")
    for path in gpu_node.node.host_path("/var/run/cdi").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    kill_container(gpu_node, kube, namespace, "lasting")
    assert gpus_in(kube, namespace, "lasting") == before
    assert kube.exec(namespace, "lasting", "cat", f"{METADATA}/resourceclaimtemplates/gpu/gpu/{FILE}")


def test_a_device_of_two_requests_with_admin_access_comes_to_the_container_once(gpu_node: GpuNode, kube: Kube, namespace: str) -> None:
    kube.kubectl("label", "namespace", namespace, "resource.kubernetes.io/admin-access=true")
    watched = claim(namespace, "watched")
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1, "adminAccess": True}
    watched["spec"]["devices"]["requests"] = [{"name": "watch", "exactly": exactly}, {"name": "tune", "exactly": exactly}]
    kube.create(watched)
    one = pod(namespace, "admin", [claim_ref("gpu", claim="watched")], node=gpu_node.name)
    one["spec"]["schedulingGates"] = [{"name": "e2e/allocation"}]
    uid = kube.create(one)["metadata"]["uid"]
    device = gpu_node.devices()[0]["name"]
    results = [{"request": name, "driver": DRIVER, "pool": gpu_node.name, "device": device, "adminAccess": True} for name in ("watch", "tune")]
    fields = [{"key": "metadata.name", "operator": "In", "values": [gpu_node.name]}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    reserved = [{"resource": "pods", "name": "admin", "uid": uid}]
    kube.patch_status("ResourceClaim", "watched", namespace, {"allocation": allocation, "reservedFor": reserved})
    kube.patch("Pod", "admin", namespace, {"spec": {"schedulingGates": []}})
    kube.wait_running(namespace, "admin")
    assert len(gpus_in(kube, namespace, "admin")) == 1
    assert list(gpu_node.prepared_claims().values()) == [[device]]
    for request in ("watch", "tune"):
        assert kube.exec(namespace, "admin", "cat", f"{METADATA}/resourceclaims/watched/{request}/{FILE}")
    kube.delete("Pod", "admin", namespace)
    kube.wait_gone("Pod", "admin", namespace)
    assert gpu_node.prepared_claims() == {}


@contextmanager
def moved(path: Path, elsewhere: Path) -> Iterator[None]:
    """While it lasts, the file or directory is not where it was."""
    path.rename(elsewhere)
    try:
        yield
    finally:
        if elsewhere.exists():
            elsewhere.rename(path)


def test_a_device_node_that_is_late_fails_its_claim_and_the_next_try_has_all_of_them(
    process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str
) -> None:
    node = process_nodes["node-a"]
    devices = node.node.host_path(f"{DRIVER_ROOT}/dev")
    kube.apply(template(namespace, "all-gpus", count=8))
    with moved(devices / "nvidia5", devices / "late"):
        kube.create(pod(namespace, "early", [claim_ref("gpu", template="all-gpus")], node=node.name))
        text = "nvidia5: No such file or directory"
        kube.wait(
            "the pod's event names the node",
            lambda: any(one["reason"] == "FailedPrepareDynamicResources" and text in one["message"] for one in kube.events(namespace, "early")),
            about=(namespace, "early"),
        )
        assert node.prepared_claims() == {}
        assert node.cdi_specs() == {}
    kube.wait_running_after_a_failure(namespace, "early")
    assert gpus_in(kube, namespace, "early") == {f"nvidia{number}" for number in range(8)}
    spec = spec_of(node, kube, namespace, "early")
    assert [one["containerEdits"]["deviceNodes"][0]["path"] for one in spec["devices"] if "deviceNodes" in one["containerEdits"]] == [
        f"/dev/nvidia{number}" for number in range(8)
    ]


def test_running_pods_follow_a_driver_that_was_installed_elsewhere(process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str) -> None:
    node = process_nodes["node-a"]
    root = node.node.host_path(DRIVER_ROOT)
    kube.apply(template(namespace, "one-gpu"))
    kube.create(lasting_pod(namespace, "before", [claim_ref("gpu", template="one-gpu")], node.name))
    kube.wait_running(namespace, "before")
    assert "libcuda.so.1" in kube.exec(namespace, "before", "ls", f"/{LIBRARIES}")

    def libraries_in(directory: str) -> Callable[[], bool]:
        def look() -> bool:
            mounts = spec_of(node, kube, namespace, "before")["containerEdits"]["mounts"]
            return all(Path(mount["hostPath"]).parent.match(directory) for mount in mounts if "/lib" in mount["hostPath"])

        return look

    with moved(root / LIBRARIES, root / OTHER_LIBRARIES):
        kube.wait("the spec of the running pod shows the new place", libraries_in(OTHER_LIBRARIES))
        kube.create(pod(namespace, "after", [claim_ref("gpu", template="one-gpu")], node=node.name))
        kube.wait_running(namespace, "after")
        kill_container(node, kube, namespace, "before")
        for name in ("before", "after"):
            assert "libcuda.so.1" in kube.exec(namespace, name, "ls", f"/{OTHER_LIBRARIES}")
    kube.wait("the spec shows the old place again", libraries_in(LIBRARIES))
