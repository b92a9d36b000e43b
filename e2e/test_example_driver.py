"""The driver of the docstring of `dra_driver.kubelet` on a real node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from e2e.example_driver import DRIVER
from e2e.kube import Kube, claim, claim_ref, pod
from e2e.process_nodes import ProcessGpuNode


def kubeconfig(node: ProcessGpuNode) -> Path:
    """With the rights of our own node program."""
    cluster = {"server": node.cluster.server, "certificate-authority": str(node.cluster.ca_file)}
    entry = {"name": "e2e", "cluster": cluster, "user": {"tokenFile": str(node.token_file)}, "context": {"cluster": "e2e", "user": "e2e"}}
    whole = {"apiVersion": "v1", "kind": "Config", "clusters": [entry], "users": [entry], "contexts": [entry], "current-context": "e2e"}
    path = node.node.root / "example-kubeconfig"
    path.write_text(yaml.safe_dump(whole))
    return path


def test_a_pod_sees_the_device_of_the_example_driver(process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str) -> None:
    node = process_nodes["node-b"]
    kube.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        }
    )
    root = str(Path(__file__).resolve().parent.parent)
    driver = node.node.spawn(
        [sys.executable, "-m", "e2e.example_driver"],
        log=node.cluster.settings.log / "example-driver.log",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root]), "NODE_NAME": node.name, "KUBECONFIG": str(kubeconfig(node))},
    )
    try:
        kube.wait("the lamps are published", lambda: kube.all("ResourceSlice", field_selector=f"spec.driver={DRIVER}"))
        lamp = claim(namespace, "lamp", selectors=[f"device.attributes['{DRIVER}'].color == 'green'"])
        lamp["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = DRIVER
        kube.create(lamp)
        kube.create(pod(namespace, "desk", [claim_ref("lamp", claim="lamp")]))
        kube.wait_running_after_a_failure(namespace, "desk")
        assert "LAMP_GREEN=lamp-18" in kube.exec(namespace, "desk", "env").splitlines()
        kube.delete("Pod", "desk", namespace)
        kube.wait_gone("Pod", "desk", namespace)
    finally:
        driver.terminate()
        status = driver.wait(30)
        kube.delete("DeviceClass", DRIVER)
    assert status == 0
