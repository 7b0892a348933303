"""The pictures of the documents, drawn as ``make picture`` draws them, but measured in a moment."""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

from forked import in_a_child

from distdemo import linking, measuring

DOCS = Path(__file__).parents[2] / "docs"


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
