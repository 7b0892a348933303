"""Draw a report as a picture: dark text on white, as SVG or PNG.

Its font is the largest at which everything fits a slide of 1920 × 1080, and it ends where its
content ends. A long report is higher, or is cut into several slides: at blank lines, before
headings and after tables. Lines are as high as the glyphs of frames in monospaced fonts, so frames
meet. An SVG names fonts but fetches none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from distdemo.view import colours
from distdemo.view.blocks import Block, Fitted, Heading, Summary, draw_block
from distdemo.view.console import Signs, in_memory, signs
from distdemo.view.foreign import printable
from distdemo.view.tables import Grid

WIDTH, HEIGHT = 1920, 1080  # pixels
MARGIN = 40  # pixels at each edge, at least
LARGEST, SMALLEST = 64.0, 20.0  # font sizes in pixels
READABLE = 26.0  # font size in pixels that the last row can read
COLUMNS = (80, 96, 120, 160)  # widths of the text that are tried
ADVANCE = 0.602  # width of a character, relative to the font size: DejaVu Sans Mono and Menlo
LEADING = 1.164  # height of a line, of the same fonts
BASELINE = 0.928  # distance from the top of a line to the baseline
ROOM = int((HEIGHT - 2 * MARGIN) / (LEADING * READABLE))  # lines on a readable slide
TABLE_FRAME = 4  # lines of a table that aren't rows
ROOM_FOR_ROWS = ROOM - TABLE_FRAME - 3  # lines; 3 for a heading, and a verdict of two lines
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
        console = in_memory(COLUMNS[0])
        pages = _pages(_parts(_short_tables(blocks(signs(console)), console), console))
    return [_draw(kind, title, page) for page in pages]


def _pages(parts: Iterable[list[Line]]) -> list[list[Line]]:
    """Put as many parts on each page as are readable on it."""
    pages: list[list[Line]] = [[]]
    for part in parts:
        if pages[-1] and len(pages[-1]) + len(part) > ROOM:
            pages.append([])
        is_blank = not pages[-1] and not _plain(part[0])
        pages[-1] += part[1:] if is_blank else part
    return pages


def _parts(blocks: Iterable[Block], console: Console) -> list[list[Line]]:
    """Cut a report at blank lines, before headings and after tables.

    A verdict stays with the table above it. A part that follows blank lines begins with one.
    """
    parts: list[list[Line]] = []
    is_cut, is_after_blank, is_after_table = True, False, False
    for block in blocks:
        is_cut |= isinstance(block, Heading)
        is_cut |= is_after_table and not isinstance(block, Summary)
        is_after_table = isinstance(block, Grid | Fitted)
        for line in _block_lines(block, console):
            if not _plain(line):
                is_cut = is_after_blank = True
                continue
            if is_cut:
                parts.append([[]] if is_after_blank else [])
                is_cut = is_after_blank = False
            parts[-1].append(line)
    return parts


def _short_tables(blocks: Iterable[Block], console: Console) -> Iterator[Block]:
    """Yield the blocks, with each table that is too long for a slide as several tables."""
    for block in blocks:
        if isinstance(block, Grid | Fitted):
            height = len(_block_lines(block, console)) - TABLE_FRAME
            count = max(1, ceil(height / ROOM_FOR_ROWS))
            for part in range(count):
                yield Fitted(partial(_rows_of, block, part, count))
        else:
            yield block


def _rows_of(table: Grid | Fitted, part: int, count: int, width: int) -> Grid:
    """Return one of ``count`` parts of a table for a maximal width of a tensor's cell.

    It begins with a row whose name isn't indented.
    """
    grid = table.draw(width) if isinstance(table, Fitted) else table
    rows = grid.rows

    def start(number: int) -> int:
        at = len(rows) * number // count
        while 0 < at < len(rows) and str(rows[at][0]).startswith(" "):
            at -= 1
        return at

    return Grid(grid.columns, rows[start(part) : start(part + 1)])


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
    parts = [_block_lines(block, console) for block in blocks(signs(console))]
    lines = [line for part in parts for line in part]
    while lines and not _plain(lines[-1]):
        lines.pop()
    return lines


def _block_lines(block: Block, console: Console) -> list[Line]:
    return console.render_lines(draw_block(block, console), pad=False)


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
