from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pictures_of_the_documents_can_be_drawn(tmp_path: Path) -> None:
    drawn = subprocess.run(
        [sys.executable, str(DOCS / "draw.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert drawn.returncode == 0, drawn.stderr
    made = {path.name for path in tmp_path.glob("*.svg")}
    assert made == {path.name for path in DOCS.glob("*.svg")}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - drawn just now
