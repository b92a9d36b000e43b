"""Pages for users: what can be checked without a cluster. Their commands are run by e2e/test_user_docs.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.cel import Device, Environment
from dra_driver.k8s.objects.resource import ResourceClaim
from e2e.pages import PAGES, Block, blocks

ROOT = PAGES.parents[1]
MARKDOWN = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("e2e/**/*.md"))]


@pytest.mark.parametrize(
    ("expected", "output", "printed"),
    [
        ("a", "a\n", True),
        ("a", "ab\n", False),
        ("a …", "a b c", True),
        ("a…", "ab", True),
        ("… b … d", "a  b   c d", True),
        ("a\nb", "a\nx\nb", True),
        ("b\na", "a\nb", False),
        ("a\na", "a", False),
        ("a.c", "abc", False),
    ],
)
def test_expected_lines_are_found_in_order(expected: str, output: str, printed: bool) -> None:
    assert Block(("sh",), "", 1, expected).is_printed_by(output) is printed


def test_output_belongs_to_the_command_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho a\n```\nwords\n```text\na\n```\n")
    assert blocks(page) == [Block(("sh",), "echo a\n", 1, "a\n")]
    page.write_text("```text\na\n```\n")
    with pytest.raises(ValueError, match=r"page.md, line 1: a text block stands after the sh block"):
        blocks(page)


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        there = (page.parent / target) if target else page
        assert there.exists(), f"{page}: {target}"
        if anchor:
            headings = {_anchor(line) for line in there.read_text().splitlines() if line.startswith("#")}
            assert anchor in headings, f"{page}: {target}#{anchor}"


def test_the_values_on_the_page_have_the_chart_s_defaults() -> None:
    values = yaml.safe_load((ROOT / "helm" / "dra-driver" / "values.yaml").read_text())
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (PAGES / "install.md").read_text().splitlines() if line[:3] == "| `"]
    assert len(rows) > 5
    for name, default, _ in rows:
        value: Any = values
        for part in name.strip("`").split("."):
            value = value[part]
        shown = "" if value in (None, "") else f"`{value if isinstance(value, str) else msgspec.json.encode(value).decode()}`"
        assert default == shown, name


def expressions(page: str) -> list[str]:
    found = []
    for block in blocks(PAGES / page):
        if block.words[0] == "yaml":
            for one in yaml.safe_load_all(block.content):
                if one["kind"] == "ResourceClaim":
                    for request in msgspec.convert(one, ResourceClaim).spec.devices.requests:
                        assert request.exactly is not None
                        found += [selector.cel.expression for selector in request.exactly.selectors if selector.cel]
    return found


@pytest.mark.parametrize("expression", expressions("first-gpu.md"))
@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "nic.example.com"])
def test_the_selectors_that_we_recommend_fail_on_no_device(driver: str, expression: str) -> None:
    bare = Device.from_api(driver, {"name": "bare"})
    assert Environment().compile(expression).matches(bare) is False
