"""The reference page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from dra_driver.gpu import attributes
from dra_driver.gpu.inventory import discover
from dra_driver.gpu.nvml import initialize
from dra_driver.gpu.simulator import simulate
from dra_driver.node.settings import NodeSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "user" / "reference.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]


def test_every_setting_of_the_node_program_is_there_with_its_default_and_meaning() -> None:
    expected = []
    for name, field in NodeSettings.model_fields.items():
        default = "required" if field.is_required() else f"`{field.default}`" if field.default not in (None, "") else ""
        expected.append([f"`--{name.replace('_', '-')}`", f"`{name.upper()}`", default, field.description])
    assert rows("Settings of the node program") == expected


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
