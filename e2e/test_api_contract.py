"""The contract tests of the API-server double, against the real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.once
def test_the_real_api_server_keeps_the_contract_that_the_double_keeps(kubeconfig: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/k8s", "-k", "contract"]
    run = subprocess.run(
        command, cwd=root, env={**os.environ, "DRA_CONTRACT_KUBECONFIG": str(kubeconfig)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert "skipped" not in run.stdout.splitlines()[-1]
