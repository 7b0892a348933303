"""What is shown on a terminal as the text of a file: no colour, and room for wide tables."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console, RenderableType

from distdemo.view.console import show

WIDTH = 120  # columns


def as_text(draw: Callable[[Console], RenderableType]) -> str:
    """What this draws for a console, whatever terminal there is."""
    memory = io.StringIO()
    console = Console(
        file=memory,
        width=WIDTH,
        color_system=None,
        force_terminal=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    show(console, draw(console))
    return memory.getvalue()
