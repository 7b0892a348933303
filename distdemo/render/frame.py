"""The frame that all tables share, and the line above it."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from distdemo.render.numbers import ROOMS

UNLIMITED = 10_000  # columns: to measure how wide a table would like to be


def fitting(console: Console, draw: Callable[[int], Table]) -> Table:
    """The roomiest of a table's drawings that this console is wide enough for.

    Args:
        console: that it will be printed on.
        draw: makes the table with so many columns for one tensor.
    """
    unlimited = console.options.update(width=UNLIMITED)
    for room in ROOMS:
        table = draw(room)
        if console.measure(table, options=unlimited).maximum <= console.width:
            break
    return table


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
