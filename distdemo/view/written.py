"""What programs write, made fit to be shown: without what moves the cursor or changes colours."""

from __future__ import annotations

import re

# ECMA-48: CSI … final byte; OSC and its like up to their end; two-byte escapes.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TAB = 8  # columns


def lines_of(text: str) -> list[str]:
    """The lines as a terminal would show them in the end: of a bar that is redrawn, the last."""
    text = text.replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line_of(line) for line in lines]


def line_of(line: str) -> str:
    """One line: what was last drawn over it, tabs as blanks, others spelled out."""
    drawn = [each for each in _ESCAPES.sub("", line).split("\r") if each]
    last = drawn[-1] if drawn else ""
    return _CONTROLS.sub(_spelled, last.expandtabs(TAB))


def _spelled(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
