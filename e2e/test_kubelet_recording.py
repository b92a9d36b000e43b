"""What the real kubelet says to a driver, compared with the recording that the stand-in is held to.

`E2E_RECORD=1` writes the recording anew.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dra_driver.sandbox.kubelet.calls import comparable
from e2e.kube import Kube, claim, claim_ref, pod
from e2e.process_nodes import ProcessGpuNode
from e2e.recorded_driver import DRIVER

RECORDING = Path(__file__).resolve().parent.parent / "tests" / "sandbox" / "kubelet_1_37.jsonl"


def test_the_recording_is_what_the_real_kubelet_does(process_nodes: dict[str, ProcessGpuNode], kube: Kube, namespace: str) -> None:
    node = process_nodes["node-b"]
    record = node.node.root / "record.jsonl"
    record.unlink(missing_ok=True)
    kube.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        }
    )
    command = [sys.executable, "-m", "e2e.recorded_driver", f"--node={node.name}", f"--server={node.cluster.server}", f"--ca={node.cluster.ca_file}"]
    root = str(Path(__file__).resolve().parent.parent)
    driver = node.node.spawn(
        [*command, f"--token={node.token_file}", f"--record={record}"],
        log=node.cluster.settings.log / "recorded-driver.log",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root])},
    )

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    def said(method: str, times: int) -> None:
        kube.wait(f"{method} is called {times} times", lambda: sum(str(line["method"]).endswith(f"/{method}") for line in lines()) >= times)

    try:
        said("NotifyRegistrationStatus", 1)
        wanted = claim(namespace, "recorded")
        wanted["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = DRIVER
        kube.create(wanted)
        kube.create(pod(namespace, "recorded", [claim_ref("device", claim="recorded")]))
        kube.wait_running_after_a_failure(namespace, "recorded")
        node.node.restart_kubelet()
        said("NotifyRegistrationStatus", 2)
        kube.delete("Pod", "recorded", namespace)
        said("NodeUnprepareResources", 1)
        kube.wait_gone("Pod", "recorded", namespace)
    finally:
        driver.terminate()
        driver.wait(30)
    assert kube.phase(namespace, "recorded") == ""
    if os.environ.get("E2E_RECORD"):
        RECORDING.write_text("".join(json.dumps(line) + "\n" for line in comparable(lines())))
    assert comparable(lines()) == [json.loads(line) for line in RECORDING.read_text().splitlines()]
    kube.delete("DeviceClass", DRIVER)
