"""Every command of the pages for users, typed into a shell in the order of the page, on the cluster with the chart."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.cluster import driver_image
from e2e.gpu_nodes import NAMESPACE, GpuNode
from e2e.kube import HANG, Kube
from e2e.pages import PAGES, ROOT, Block, blocks
from e2e.pod_nodes import Chart

VARIABLES = {"REPOSITORY": driver_image.REPOSITORY, "TAG": driver_image.TAG, "NODE": "node-b", "DRIVER": NAMESPACE}
STAND_INS = {"ubuntu:24.04": "localhost/busybox:e2e"}  # an image that the cluster cannot pull: one that it has


class Reader:
    """Somebody who follows a page: in the repository, with a kubeconfig of their own whose namespace is theirs."""

    def __init__(self, chart: Chart, namespace: str, home: Path) -> None:
        self._kube, self._home = chart.kube, home
        for name in ("helm", "manifests"):
            (home / name).symlink_to(ROOT / name)
        kubeconfig = home / "kubeconfig"
        kubeconfig.write_bytes(chart.cluster.kubeconfig.read_bytes())
        self._environment = {**chart.environment, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}
        self._type(f"kubectl config set-context --current --namespace={namespace}")

    def follow(self, page: str) -> None:
        for block in blocks(PAGES / page):
            match block.words:
                case ["sh"]:
                    self._run(page, block)
                case ["sh", "variables"]:
                    self._environment |= {name: VARIABLES[name] for name in block.variables()}
                case ["yaml", name]:
                    text = block.content
                    for image, stand_in in STAND_INS.items():
                        text = text.replace(image, stand_in)
                    (self._home / name).write_text(text)
                case _:
                    pytest.fail(f"{page}, line {block.line}: unknown block {' '.join(block.words)}")

    def _run(self, page: str, block: Block) -> None:
        output = self._type(block.content)
        seen = [output]

        def printed() -> bool:
            if not block.is_printed_by(seen[0]):
                seen[0] = self._type(block.content)  # events and the like come a moment later
            return block.is_printed_by(seen[0])

        try:
            self._kube.wait("the output is as on the page", printed, limit=30.0)
        except AssertionError:
            pytest.fail(f"{page}, line {block.line}:\n{block.content}\nprints\n{seen[0]}\nand not\n{block.expected}")

    def _type(self, commands: str) -> str:
        shell = ["bash", "-euo", "pipefail", "-c", commands]
        run = subprocess.run(shell, cwd=self._home, env=self._environment, capture_output=True, text=True, check=False, timeout=3 * HANG)
        assert run.returncode == 0, f"{commands}\n{run.stdout}{run.stderr}"
        return run.stdout + run.stderr


@pytest.fixture
def reader(chart: Chart, namespace: str, tmp_path: Path) -> Reader:
    return Reader(chart, namespace, tmp_path)


def test_install(chart: Chart, kube: Kube, reader: Reader) -> None:
    chart.uninstall()
    driver_image.give(chart.cluster, chart.image)
    try:
        reader.follow("install.md")
    finally:
        kube.kubectl("label", "node", VARIABLES["NODE"], "nvidia.com/gpu.present-")
    assert kube.get("DeviceClass", "gpu.nvidia.com") is None


def test_first_gpu(gpu_nodes: Mapping[str, GpuNode], reader: Reader) -> None:
    reader.follow("first-gpu.md")


def test_troubleshooting(gpu_nodes: Mapping[str, GpuNode], reader: Reader) -> None:
    reader.follow("troubleshooting.md")


def test_no_page_is_left_out() -> None:
    with_commands = {path.name for path in PAGES.glob("*.md") if any(block.words[:1] == ("sh",) for block in blocks(path))}
    assert with_commands == {"install.md", "first-gpu.md", "troubleshooting.md"}
