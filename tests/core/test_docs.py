"""Check that the docs are up to date and complete, and that their links exist."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import releases
from processes import Start

from distdemo.backends.contract import capability_map
from distdemo.calls.match.rules import KINDS
from distdemo.learn.catalogue import MISTAKES
from distdemo.versions import TRIED, release_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def test_the_reference_and_the_schemas_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generated = generate.files()
    stale = [
        file.name for file, text in generated.items() if file.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "make docs regenerates them"
    assert {file.name for file in (DOCS / "schemas").iterdir()} <= {file.name for file in generated}


def test_the_page_of_releases_lists_those_that_are_tried() -> None:
    text = (DOCS / "releases.md").read_text(encoding="utf-8")
    listed = list(dict.fromkeys(re.findall(r"^\| (\d+\.\d+\.\d+) \| 3\.", text, re.MULTILINE)))
    assert tuple(listed) == releases.RELEASES
    assert (release_of(listed[0]), release_of(listed[-1])) == TRIED
    gloo = capability_map("gloo")
    assert gloo is not None
    assert gloo.releases == tuple(release.rpartition(".")[0] for release in listed)


def sections(page: Path) -> set[str]:
    """Return the names by which links refer to the sections of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_and_sections_that_a_page_links_to_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, section in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if not link.startswith("http"):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not section or section in sections(target), f"{link}#{section}"


def test_the_menu_and_the_home_page_list_every_page_once() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    def pages(entries: list[dict[str, Any]]) -> Iterator[str]:
        for entry in entries:
            ((_, page),) = entry.items()
            yield from [page] if isinstance(page, str) else pages(page)

    listed = list(pages(menu))
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))
    home = (DOCS / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[.+?\]\((.+?)\)", home, flags=re.MULTILINE) == listed[1:]


def test_every_kind_of_finding_and_every_mistake_is_shown() -> None:
    findings = (DOCS / "findings.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in findings] == []
    mistakes = (DOCS / "mistakes.md").read_text(encoding="utf-8")
    assert [name for name in MISTAKES if f"│ {name} " not in mistakes] == []


@pytest.mark.processes
def test_the_site_is_built_without_a_warning(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    line = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    code, _, err = start(sys.executable, *line, cwd=ROOT).finish()
    assert code == 0, err
    assert (tmp_path / "index.html").exists()
