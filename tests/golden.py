"""Reports as whole texts: one file a report, made anew with ``DISTDEMO_GOLDEN=1``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from distdemo.view.console import show


def drawn(draw: Callable[[Console], Any], width: int = 80, encoding: str = "utf-8") -> str:
    """What a view draws on a console of this width and encoding, without colours."""
    memory = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(
        file=memory, width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    show(console, draw(console))
    memory.flush()
    return memory.buffer.getvalue().decode(encoding)


def golden(file: Path, draw: Callable[[Console], Any]) -> None:
    """Compare a view with its golden file: at 80 columns, and at 40 in ASCII.

    Args:
        file: ``tests/bench/golden/table.txt``; both widths stand in it.
        draw: from a console to what is shown on it.
    """
    matches(file, drawn(draw) + "\n" + "=" * 40 + "\n" + drawn(draw, 40, "ascii"))


def matches(file: Path, text: str) -> None:
    """Compare any text with its golden file."""
    if os.environ.get("DISTDEMO_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"DISTDEMO_GOLDEN=1 makes {file} anew"
