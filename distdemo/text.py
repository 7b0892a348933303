"""Bound text that comes from outside: programs, files, other hosts, the command line.

Each entrance cuts or refuses what is longer, before anything else looks at it. All later work, such
as matching a regular expression, takes time linear in the text.
"""

from __future__ import annotations

MAX_CHARS = 200_000
"""Most characters of any text from outside, such as an exception's message or a traceback."""


def cut(text: str, most: int = MAX_CHARS) -> str:
    """Return the text, without its middle if it has more than ``most`` characters."""
    if len(text) <= most:
        return text
    mark = f" [... {len(text) - most:,} characters left out ...] "
    half = max(0, most - len(mark)) // 2
    return text[:half] + mark + text[len(text) - half :]
