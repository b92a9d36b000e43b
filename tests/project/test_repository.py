"""Rules that hold for the repository as a whole."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_locks_name_no_address() -> None:
    for path in (ROOT / "requirements").iterdir():
        text = path.read_text()
        assert "://" not in text, path
        assert "--index-url" not in text, path
        assert "--hash=sha256:" in text, path


def test_every_dependency_has_a_floor() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"] + project["build-system"]["requires"]
    assert [one for one in wanted if not re.fullmatch(r"[A-Za-z0-9_.-]+>=[0-9][0-9.]*", one)] == []


def test_no_registry_host_stands_in_a_file() -> None:
    hosts = re.compile(rb"pypi\.org|pythonhosted|proxy\.golang|deb\.debian|docker\.io|ghcr\.io|quay\.io|gcr\.io|registry\.k8s\.io|nvcr\.io")
    bad = [str(path.relative_to(ROOT)) for path in tracked() if path != Path(__file__) and hosts.search(path.read_bytes())]
    assert bad == []


def test_modules_stay_small_enough_to_hold_in_the_head() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py") if "_proto" not in path.parts}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 400} == {}
