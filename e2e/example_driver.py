"""Runs the driver of the docstring of `dra_driver.kubelet`, as it stands there.

`python -m e2e.example_driver` on a node; `--kubelet` and `--cdi` are other directories than the standard ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import dra_driver.kubelet
from dra_driver.kubelet import plugin

DRIVER = "lamp.example.com"


def source() -> str:
    """The program."""
    text = dra_driver.kubelet.__doc__ or ""
    block = text.split("::\n", 1)[1].lstrip("\n")
    lines = []
    for line in block.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line.removeprefix("    "))
    return "\n".join(lines).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubelet", type=Path, default=plugin.KUBELET_DIRECTORY)
    parser.add_argument("--cdi", type=Path, default=plugin.CDI_DIRECTORY)
    given = parser.parse_args()
    plugin.KUBELET_DIRECTORY, plugin.CDI_DIRECTORY = given.kubelet, given.cdi
    exec(compile(source(), "example", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
