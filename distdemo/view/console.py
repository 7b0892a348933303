"""The consoles for output and messages, and the signs that a terminal can display."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from distdemo.view.foreign import printable

PLAIN_WIDTH = 80  # columns if the output is not a terminal
FILE_WIDTH = 120  # columns of a text file
LEAST_WIDTH = 20  # columns; a narrower terminal must be misreported


@dataclass(frozen=True, slots=True)
class Signs:
    """Characters with a meaning. `ASCII_SIGNS` replaces them where Unicode isn't available."""

    right: str = "✓"
    wrong: str = "✗"
    none: str = "—"
    more: str = "…"
    arrow: str = "▶"
    dot: str = "·"
    bar: str = "│"
    half: str = "±"
    best: str = "★"


ASCII_SIGNS = Signs("ok", "WRONG", "-", "...", ">", "|", "|", "+-", "*")
# Other characters in texts, one for one, so that columns stay aligned.
_PLAIN = str.maketrans("−–—×µ·→▸▶★█░═─≠≈±αβΣ│┤├┼┐┌┬┘└┴", "---xu*>*>*#.=-!~~abS|+++++++++")
_HELD = "\ue000"
"""Stands for a space at which no line may end; Rich would break at a no-break space."""
_UNIT = "(?:[KMGT]?i?B|[TGM]B/s|[µm]?s|cores?)\\b"
# A space beside an operator or a logarithm, or between a number and its unit.
_NO_BREAK = re.compile(rf" (?=[=×/+−] )|(?<= [=×/+−]) |(?<=\blg) |(?<=\d) (?=\S*\blg |{_UNIT})")


class _Console(Console):
    """A console that escapes unsafe characters in all text, whichever view prints it.

    No line ends within a formula.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render_str(self, text: str, **styled: Any) -> Text:
        """Return a string, such as a table's cell, as printable text."""
        return super().render_str(printable(text), **styled)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render part of a view. Rich calls this for every text, however deeply nested."""
        if isinstance(renderable, str):
            renderable = self.render_str(renderable)
        if not isinstance(renderable, Text):
            return super().render(renderable, options)
        width = (options or self.options).max_width
        segments = super().render(_held(_printable(renderable), width), options)
        return (segment._replace(text=segment.text.replace(_HELD, " ")) for segment in segments)


def _held(text: Text, width: int) -> Text:
    """Return the text with formulas that fit into a line held together."""

    def fit(word: re.Match[str]) -> str:
        return word[0] if len(word[0]) <= width else word[0].replace(_HELD, " ")

    held = text.copy()
    held.plain = re.sub(r"\S+", fit, _NO_BREAK.sub(_HELD, text.plain))
    return held


def _printable(text: Text) -> Text:
    """Return the text with its styles, and with unsafe characters escaped."""
    plain = text.plain
    if printable(plain) == plain:
        return text

    def moved(offset: int) -> int:
        return len(printable(plain[:offset]))

    clean = text.blank_copy(printable(plain))
    clean.spans = [Span(moved(span.start), moved(span.end), span.style) for span in text.spans]
    return clean


def output(file: object = None) -> Console:
    """Return the console for results, on standard output."""
    stream = file or sys.stdout
    has_width = _is_terminal(stream) or "COLUMNS" in os.environ
    console = _Console(file=stream, width=None if has_width else PLAIN_WIDTH)
    if console.width < LEAST_WIDTH:  # COLUMNS=0, or a terminal with unknown width
        console.width = PLAIN_WIDTH
    return console


def show(console: Console, renderable: RenderableType, *, wrap: bool = True) -> None:
    """Print; without trailing spaces unless the console is a terminal, or records.

    Args:
        console: Console to print on.
        renderable: Renderable to print.
        wrap: False to leave long lines whole, so that they can be copied.
    """
    unicode = _is_unicode(console)
    if console.record or (console.is_terminal and unicode):
        console.print(renderable, soft_wrap=not wrap)
        return
    with console.capture() as captured:
        console.print(renderable, soft_wrap=not wrap)
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().removesuffix("\n").split("\n"))
    if not unicode:
        text = text.translate(_PLAIN)
    console.file.write(text.encode(console.encoding, "replace").decode(console.encoding))


def messages() -> Console:
    """Return the console for errors and warnings, on standard error."""
    return output(sys.stderr)


def signs(console: Console) -> Signs:
    """Return the signs for this console's encoding."""
    return Signs() if _is_unicode(console) else ASCII_SIGNS


def can_redraw(console: Console) -> bool:
    """Return True if the console is a Unicode terminal that can redraw in place.

    Checks the stream itself, as FORCE_COLOR makes Rich assume a terminal.
    """
    terminal = console.is_terminal and _is_terminal(console.file)
    return terminal and not console.is_dumb_terminal and _is_unicode(console)


def _is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


def in_memory(width: int = FILE_WIDTH) -> Console:
    """Return a console without colour that prints into a `StringIO`."""
    return _Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)


def recorder(width: int) -> Console:
    """Return a console that only records, for HTML."""
    return _Console(record=True, file=io.StringIO(), width=width, force_jupyter=False)


def as_text(write: Callable[[Console], None]) -> str:
    """Return what a function prints, without colour and `FILE_WIDTH` wide, as text for a file."""
    console = in_memory()
    write(console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # it is a StringIO
