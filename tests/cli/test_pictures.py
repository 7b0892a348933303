"""The pictures of the documents, drawn as ``make picture`` draws them, but measured in a moment."""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from forked import in_a_child

from distdemo.bench import linking
from distdemo.bench import records as measuring

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 150_000  # bytes of a picture that everybody loads who looks at the README


def test_the_pictures_of_the_documents_can_be_drawn(tmp_path: Path) -> None:
    def draw() -> None:
        # A picture that people look at is measured until it is steady, which takes half a minute.
        measuring.BenchSpec = partial(measuring.BenchSpec, iters=6, limits=False)  # type: ignore[assignment, misc]  # makes one all the same
        linking.LinksSpec = partial(linking.LinksSpec, iters=2, rounds=1)  # type: ignore[assignment, misc]  # as above
        sys.argv = ["draw.py", str(tmp_path)]
        runpy.run_path(str(DOCS / "draw.py"), run_name="__main__")

    in_a_child(draw)
    made = {path.name for path in tmp_path.glob("*.svg")}
    assert made == {path.name for path in DOCS.glob("*.svg")}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - drawn just now


@pytest.mark.skipif(
    importlib.util.find_spec("playwright") is None
    or not any(map(shutil.which, ("chromium", "google-chrome", "google-chrome-stable"))),
    reason="no Chromium here, or no Playwright to drive it: make test installs both",
)
def test_the_picture_of_the_page_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.png"
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.setattr(sys, "argv", ["draw_page.py", str(file)])
    in_a_child(lambda: runpy.run_path(str(DOCS / "draw_page.py"), run_name="__main__"))
    for each in (file, DOCS / "trace-page.png"):
        assert each.read_bytes().startswith(b"\x89PNG")
        assert each.stat().st_size < LARGEST
