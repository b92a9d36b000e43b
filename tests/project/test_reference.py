"""The reference page says what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dra_driver.controller.class_controller import ClassController
from dra_driver.controller.metrics import ControllerMetrics
from dra_driver.controller.report import MEANINGS, WARNINGS, ClassReport, State
from dra_driver.controller.settings import ControllerSettings
from dra_driver.daemon.settings import Settings
from dra_driver.gpu import attributes, faults
from dra_driver.gpu.inventory import discover
from dra_driver.gpu.nvml import initialize
from dra_driver.gpu.simulator import simulate
from dra_driver.k8s.client import Client
from dra_driver.k8s.config import Connection
from dra_driver.k8s.objects.resource import DeviceRequestAllocationResult
from dra_driver.kubelet import metadata
from dra_driver.kubelet.cdi import ContainerEdits
from dra_driver.kubelet.driver import DeviceMetadata, Plan, PlannedDevice
from dra_driver.kubelet.health import UNMONITORED
from dra_driver.kubelet.journal import ClaimKey
from dra_driver.node.driver import DRIVER
from dra_driver.node.settings import NodeSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "user" / "reference.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("heading", "model"), [("Settings of the node program", NodeSettings), ("Settings of the controller", ControllerSettings)])
def test_every_setting_is_there_with_its_default_and_meaning(heading: str, model: type[Settings]) -> None:
    expected = []
    for field in dataclasses.fields(model):
        default = "required" if field.default is dataclasses.MISSING else f"`{field.default}`" if field.default not in (None, "") else ""
        expected.append([f"`--{field.name.replace('_', '-')}`", f"`{field.name.upper()}`", default, field.metadata["description"]])
    assert rows(heading) == expected


def test_every_attribute_and_capacity_is_there_with_its_type(tmp_path: Path) -> None:
    nvml, paths = simulate("h100-sxm-80gb", tmp_path / "root", gpus=1, seed="node")
    initialize(nvml)
    device = attributes.device(discover(nvml, paths).gpus[0])
    published = {
        name: next(kind for kind in ("string", "version", "int_") if getattr(value, kind) is not None) for name, value in device.attributes.items()
    }
    listed = [[re.sub("`", "", row[0]), *row[1:]] for row in rows("Attributes and capacities of a GPU")]
    assert {row[0]: row[1] for row in listed if len(row) == 4} == {name: kind.rstrip("_") for name, kind in published.items()}
    assert {row[0] for row in listed if len(row) == 3} == set(device.capacity)


def test_every_taint_is_there() -> None:
    assert [row[0] for row in rows("Health of a GPU")] == [f"`{DRIVER}/{reason}`" for reason in (faults.LOST, faults.NOT_ANSWERING, UNMONITORED)]


def test_every_state_of_a_class_is_there_with_its_type_and_meaning() -> None:
    assert set(MEANINGS) == set(State)
    expected = [[f"`{state}`", "Warning" if state in WARNINGS else "Normal", text] for state, text in MEANINGS.items()]
    assert rows("States of a DeviceClass") == expected


def test_every_metric_of_the_controller_is_there_with_its_labels() -> None:
    client = Client(Connection("http://localhost:1"), "test")
    controller = ClassController(client)
    controller.reports = {"one": ClassReport("one", "uid")}
    expected = []
    for metric in ControllerMetrics(controller, client).collect():
        labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        assert {"device", "node", "pool"}.isdisjoint(labels)
        expected.append([f"`{name}`", metric.type, ", ".join(f"`{label}`" for label in labels), metric.documentation])
    assert rows("Metrics of the controller") == expected


def test_the_page_tells_where_containers_find_what_their_gpus_are() -> None:
    section = PAGE.split("\n## What a container finds\n")[1].split("\n## ")[0]
    claim, result = ClaimKey("ns", "<claim>", "uid"), DeviceRequestAllocationResult(request="<request>/big", driver=DRIVER, pool="p", device="d")
    plan = Plan((PlannedDevice(result, "uuid", ContainerEdits(), DeviceMetadata()),))
    for pod_claim in ("", "<name in the pod>"):
        (file,) = metadata.files_for(DRIVER, claim, pod_claim, plan)
        assert f"- `{file.container_path}`\n" in section
    assert " and ".join(f"`{version}`" for version in metadata.API_VERSIONS) in section
