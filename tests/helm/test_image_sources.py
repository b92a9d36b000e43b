"""What goes into the image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import driver_image

ROOT = Path(__file__).resolve().parents[2]


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["runtime", "build"])
def test_the_image_has_the_versions_that_the_tests_ran_with(name: str) -> None:
    assert locked(name).items() <= locked("dev").items()


def test_every_dependency_of_the_programs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split("[>=]", one)[0].lower() for one in project["dependencies"]}
    assert wanted - locked("runtime").keys() == set()


def test_nothing_that_the_dockerfile_copies_is_left_out_of_its_key_or_of_its_context(tmp_path: Path) -> None:
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) for word in line.split()]
    known = {*driver_image._SOURCES, "src/"}
    assert set(copied) - known == set()
    context = set((ROOT / ".dockerignore").read_text().splitlines())
    assert {f"!{path.split('/')[0]}" for path in copied} - context == set()


def test_a_change_of_the_sources_is_another_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*driver_image._SOURCES, "src/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(driver_image, "ROOT", tmp_path)
    found = {driver_image.archive(tmp_path)}
    for name in (*driver_image._SOURCES, "src/a.py", "src/b.py"):
        (tmp_path / name).write_text("two")
        found.add(driver_image.archive(tmp_path))
    assert len(found) == len(driver_image._SOURCES) + 3
