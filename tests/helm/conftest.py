"""helm, from the tools of the local cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster import build
from e2e.cluster.settings import default_cache

CHART = Path(__file__).resolve().parents[2] / "helm" / "dra-driver"

Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Runs helm with these arguments on the chart."""
    program = build.directory(default_cache()) / "helm"
    if not program.exists():
        if os.environ.get("CI"):
            pytest.fail("helm is not built: .ci/run builds the tools before the tests")
        pytest.skip("helm is not built: python -m e2e.cluster build")
    places = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}

    def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **places, "KUBECONFIG": "/dev/null"}
        return subprocess.run([program, command, *arguments], env=environment, capture_output=True, text=True, check=False)

    return run
