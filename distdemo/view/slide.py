"""Draw a report as a picture: dark text on white, as SVG or PNG.

It fills a slide of 1920 × 1080 in the largest font at which everything fits; a long report is as
large as its content. Lines are as high as the glyphs of frames in monospaced fonts, so frames meet.
An SVG names fonts but fetches none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.console import Group
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from distdemo.view.blocks import Block, draw_block
from distdemo.view.console import Signs, in_memory, signs
from distdemo.view.foreign import printable

WIDTH, HEIGHT = 1920, 1080  # pixels
MARGIN = 40  # pixels at each edge, at least
LARGEST, SMALLEST = 44.0, 20.0  # font sizes in pixels
COLUMNS = (80, 96, 120, 160)  # widths of the text that are tried
ADVANCE = 0.602  # width of a character, relative to the font size: DejaVu Sans Mono and Menlo
LEADING = 1.164  # height of a line, of the same fonts
BASELINE = 0.928  # distance from the top of a line to the baseline
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', 'Courier New', monospace"
DPI = 100  # of a PNG; matplotlib measures in inches

# Black to white, then their bright forms; all have a contrast of at least 4.5 on white.
_CODES = (
    "1a1c20 ba1a24 0d703c 925800 1442a0 a42696 00708a 555a63",
    "555a63 d63a1e 4e7000 7a6214 2864dc 8246c8 3c6482 1a1c20",
)
_NORMAL, _BRIGHT = ([(*bytes.fromhex(code),) for code in codes.split()] for codes in _CODES)
THEME = TerminalTheme((255, 255, 255), _NORMAL[0], _NORMAL, _BRIGHT)
# Words up to two spaces, or a frame's part: a font of another width can't drift far.
_PARTS = re.compile(r"[─═█░]+|[│├┤┬┴┼╭┌╮┐╰└╯┘▶]|[^\s─-╰█░▶]+(?: [^\s─-╰█░▶]+)*|\s+")

Blocks = Callable[[Signs], Iterable[Block]]
Line = list[Segment]


class _Label(NamedTuple):
    """Text; ``x`` and ``y`` are the left end of its baseline."""

    text: str
    x: float
    y: float
    width: float
    colour: str
    weight: str


def draw_picture(kind: str, title: str, blocks: Blocks) -> bytes:
    """Return a picture of a report.

    Args:
        kind: ``svg`` or ``png``.
        title: Title of an SVG, for readers who can't see it.
        blocks: Function that returns the blocks for a terminal's signs.
    """
    size = 0.0
    lines: list[Line] = []
    width = height = 0
    for columns in COLUMNS:
        candidate = _lines(blocks, columns)
        widest = max((cell_len(_plain(line)) for line in candidate), default=1)
        by_width = (WIDTH - 2 * MARGIN) / (ADVANCE * max(widest, 1))
        by_height = (HEIGHT - 2 * MARGIN) / (LEADING * max(1, len(candidate)))
        best = min(LARGEST, by_width, max(SMALLEST, by_height))
        if best > size:
            size = best
            lines = candidate
            width = round(ADVANCE * widest * size) + 2 * MARGIN
            height = round(LEADING * len(lines) * size) + 2 * MARGIN
        if by_width < by_height:  # wider lines need a smaller font
            break
    top = max(MARGIN, MARGIN + (HEIGHT - height) / 2)
    if height <= HEIGHT:
        width, height = WIDTH, HEIGHT
    labels = _labels(lines, size, top)
    if kind == "svg":
        return _to_svg(labels, size, width, height, title).encode()
    return _to_png(labels, size, width, height)


def _lines(blocks: Blocks, columns: int) -> list[Line]:
    """Return the lines of the report at this width."""
    console = in_memory(columns)
    parts = [draw_block(block, console) for block in blocks(signs(console))]
    lines = console.render_lines(Group(*parts), pad=False)
    while lines and not _plain(lines[-1]):
        lines.pop()
    return lines


def _plain(line: Line) -> str:
    return "".join(segment.text for segment in line).rstrip()


def _labels(lines: Iterable[Line], size: float, top: float) -> Iterator[_Label]:
    """Yield the texts of these lines in this font size, from this height on."""
    for row, line in enumerate(lines):
        y = top + (row * LEADING + BASELINE) * size
        left = float(MARGIN)
        for segment in line:
            style = segment.style or Style.null()
            weight = "bold" if style.bold else "normal"
            for part in _PARTS.findall(printable(segment.text)):
                width = cell_len(part) * ADVANCE * size
                if part.strip():
                    yield _Label(part, left, y, width, _colour(style), weight)
                left += width


def _colour(style: Style) -> str:
    """Return the colour of a style on white."""
    ink = THEME.foreground_color
    colour = style.color.get_truecolor(THEME) if style.color else ink
    if style.dim and colour == ink:  # a colour would be too pale to read
        colour = THEME.ansi_colors[7]
    return f"#{bytes(colour).hex()}"


def _to_svg(labels: Iterable[_Label], size: float, width: int, height: int, title: str) -> str:
    """Return an SVG with plain attributes, which every reader of SVG understands."""
    box = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width} {height}">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect {box} fill="#ffffff"/>',
        f'<g font-family="{FONTS}" font-size="{size:.2f}">',
    ]
    for label in labels:
        place = f'x="{label.x:.1f}" y="{label.y:.1f}" textLength="{label.width:.1f}"'
        look = f'fill="{label.colour}" font-weight="{label.weight}"'
        parts.append(
            f'<text {place} lengthAdjust="spacingAndGlyphs" {look}>{escape(label.text)}</text>'
        )
    return "\n".join([*parts, "</g>", "</svg>\n"])


def _to_png(labels: Iterable[_Label], size: float, width: int, height: int) -> bytes:
    """Return a PNG, drawn by matplotlib with its own font."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"text.hinting": "none", "font.family": ["DejaVu Sans Mono", "DejaVu Sans"]}):
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        for label in labels:
            look: Any = {"color": label.colour, "weight": label.weight}
            x, y = label.x / width, 1 - label.y / height
            figure.text(x, y, label.text, size=size * 72 / DPI, parse_math=False, **look)
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=DPI)
        return memory.getvalue()
