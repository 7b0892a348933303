"""The frame that all tables share, and the line above it."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text


def frame() -> Table:
    """An empty table in the house's style; the caller adds columns."""
    return Table(
        box=box.ROUNDED,
        header_style="bold",
        border_style="dim",
        pad_edge=True,
    )


def heading(text: str) -> Text:
    """The line above a table."""
    return Text(text, style="bold")
