"""Reports as whole texts: one file per report, written anew with ``DISTDEMO_GOLDEN=1``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.table import Table

from distdemo.view.blocks import Block, Fitted, Paragraph, show_blocks, to_markdown
from distdemo.view.console import Signs, in_memory, output, signs
from distdemo.view.tables import Grid, fitting

Blocks = Callable[[Signs], Iterable[Block]]


def drawn(blocks: Blocks, width: int = 80, encoding: str = "utf-8") -> str:
    """Return a report as a console of this width and encoding shows it, without colours."""
    file = io.BytesIO()
    memory = io.TextIOWrapper(file, encoding=encoding, errors="replace")
    console = output(memory)
    console.width = width
    show_blocks(console, blocks(signs(console)))
    memory.flush()
    return file.getvalue().decode(encoding)


def golden(file: Path, blocks: Blocks, *, wide: bool = False) -> None:
    """Compare a report with its golden file: 80 columns, 60 columns, 40 in ASCII, and Markdown.

    Args:
        file: ``tests/bench/golden/table.txt``; all forms are in it.
        blocks: Function that returns the report for a terminal's signs.
        wide: True if a table becomes a list at 80 columns. Otherwise it must not.
    """
    if not wide:
        console = in_memory(80)
        for each in blocks(Signs()):
            if isinstance(each, Grid | Fitted):
                draw = each.draw if isinstance(each, Fitted) else lambda _, grid=each: grid
                assert isinstance(fitting(console, draw), Table), f"{file}: a list at 80 columns"
    forms = [drawn(blocks), drawn(blocks, 60), drawn(blocks, 40, "ascii")]
    whole = [each for each in blocks(Signs()) if isinstance(each, Paragraph) and each.verbatim]
    for text, width in zip(forms, (80, 60, 40), strict=True):
        assert whole or max(map(len, text.splitlines())) <= width, f"{file}: wider than {width}"
    rule = "\n" + "=" * 40 + "\n"
    matches(file, rule.join([*forms, to_markdown(blocks(Signs()), Signs())]))


def matches(file: Path, text: str) -> None:
    """Compare any text with its golden file."""
    if os.environ.get("DISTDEMO_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"DISTDEMO_GOLDEN=1 writes {file} anew"
