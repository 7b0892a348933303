"""Draw a report as a picture: dark text on white, as SVG or PNG.

Its font is the largest at which everything fits a slide of 1920 × 1080, and it ends where its
content ends. A long report is higher, or is cut at blank lines into several slides. Lines are as
high as the glyphs of frames in monospaced fonts, so frames meet. An SVG names fonts but fetches
none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.console import Group
from rich.segment import Segment
from rich.style import Style

from distdemo.view import colours
from distdemo.view.blocks import Block, draw_block
from distdemo.view.console import Signs, in_memory, signs
from distdemo.view.foreign import printable

WIDTH, HEIGHT = 1920, 1080  # pixels
MARGIN = 40  # pixels at each edge, at least
LARGEST, SMALLEST = 64.0, 20.0  # font sizes in pixels
READABLE = 26.0  # font size in pixels that the last row can read: 33 lines on a slide
COLUMNS = (80, 96, 120, 160)  # widths of the text that are tried
ADVANCE = 0.602  # width of a character, relative to the font size: DejaVu Sans Mono and Menlo
LEADING = 1.164  # height of a line, of the same fonts
BASELINE = 0.928  # distance from the top of a line to the baseline
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', 'Courier New', monospace"
DPI = 100  # of a PNG; matplotlib measures in inches

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
    return _draw(kind, title, _fitted_lines(blocks))


def draw_slides(kind: str, title: str, blocks: Blocks) -> list[bytes]:
    """Return one picture of a report, or several if its text would be too small to read.

    Args:
        kind: ``svg`` or ``png``.
        title: Title of an SVG, for readers who can't see it.
        blocks: Function that returns the blocks for a terminal's signs.
    """
    lines = _fitted_lines(blocks)
    by_width, by_height = _largest_sizes(lines)
    pages = [lines]
    if min(by_width, by_height) < READABLE:
        pages = _pages(_lines(blocks, COLUMNS[0]))
    return [_draw(kind, title, page) for page in pages]


def _pages(lines: Iterable[Line]) -> list[list[Line]]:
    """Cut lines at blank ones, so that a page is readable where its paragraphs allow it."""
    room = int((HEIGHT - 2 * MARGIN) / (LEADING * READABLE))
    pages: list[list[Line]] = [[]]
    for is_text, group in groupby(lines, lambda line: bool(_plain(line))):
        paragraph = list(group)
        if not is_text:
            continue
        page = pages[-1]
        if page and len(page) + 1 + len(paragraph) > room:
            pages.append(paragraph)
        else:
            page += [[], *paragraph] if page else paragraph
    return pages


def _fitted_lines(blocks: Blocks) -> list[Line]:
    """Return the lines of the report at the width that allows the largest font."""
    fit = 0.0
    lines: list[Line] = []
    for columns in COLUMNS:
        candidate = _lines(blocks, columns)
        by_width, by_height = _largest_sizes(candidate)
        if min(by_width, by_height) > fit:
            fit = min(by_width, by_height)
            lines = candidate
        if by_width < by_height:  # wider lines need a smaller font
            break
    return lines


def _largest_sizes(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the largest font sizes at which lines fit the width and the height of a slide."""
    by_width = (WIDTH - 2 * MARGIN) / (ADVANCE * _columns(lines))
    by_height = (HEIGHT - 2 * MARGIN) / (LEADING * max(1, len(lines)))
    return by_width, by_height


def _columns(lines: Iterable[Line]) -> int:
    return max(1, max((cell_len(_plain(line)) for line in lines), default=1))


def _draw(kind: str, title: str, lines: Sequence[Line]) -> bytes:
    """Return a picture of these lines in the largest font that fits."""
    by_width, by_height = _largest_sizes(lines)
    size = min(LARGEST, by_width, max(SMALLEST, by_height))
    width = round(ADVANCE * _columns(lines) * size) + 2 * MARGIN
    height = round(LEADING * len(lines) * size) + 2 * MARGIN
    labels = _labels(lines, size)
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


def _labels(lines: Iterable[Line], size: float) -> Iterator[_Label]:
    """Yield the texts of these lines in this font size."""
    for row, line in enumerate(lines):
        y = MARGIN + (row * LEADING + BASELINE) * size
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
    if style.color:  # if it is dim, too, it would be too pale to read
        return style.color.get_truecolor().hex
    return colours.PALE_INK if style.dim else colours.INK


def _to_svg(labels: Iterable[_Label], size: float, width: int, height: int, title: str) -> str:
    """Return an SVG with plain attributes, which every reader of SVG understands."""
    box = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width} {height}">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect {box} fill="{colours.PAPER}"/>',
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
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=colours.PAPER)
        for label in labels:
            look: Any = {"color": label.colour, "weight": label.weight}
            x, y = label.x / width, 1 - label.y / height
            figure.text(x, y, label.text, size=size * 72 / DPI, parse_math=False, **look)
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=DPI)
        return memory.getvalue()
