"""Draw blocks as pictures for slides: dark text on white, 1920 × 1080, as SVG or PNG.

Text is set in the largest size at which everything fits. Frames, arrows and bars are drawn as
shapes rather than characters, so they meet in any font. An SVG names fonts but fetches none.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.console import Group
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from distdemo.view.blocks import Block, Drawing, draw_block
from distdemo.view.console import Signs, in_memory, signs
from distdemo.view.foreign import printable

WIDTH, HEIGHT = 1920, 1080  # pixels
MARGIN = 40  # pixels at each edge, at least
LARGEST, SMALLEST = 44.0, 20.0  # font sizes in pixels; more text makes the picture higher
COLUMNS = (80, 96, 120, 160)  # widths of the text that are tried
ADVANCE = 0.602  # width of a character, relative to the font size: DejaVu Sans Mono and Menlo
LEADING = 1.3  # height of a line
BASELINE = 0.96  # distance from the top of a line to the baseline
MIDDLE = 0.62  # and to the middle of its capitals
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', 'Courier New', monospace"
STROKE = 0.06  # width of a line
TOUCHING = 0.5  # distance in pixels of the ends of strokes that are joined
GAP = 0.05  # between bars in two lines, on each side, relative to the height of a line
DPI = 100  # of a PNG; matplotlib measures in inches

# Every colour has a contrast of at least 4.5 on white.
_WHITE, _INK, _QUIET = (255, 255, 255), (26, 28, 32), (85, 90, 99)
THEME = TerminalTheme(
    background=_WHITE,
    foreground=_INK,
    normal=[
        _INK,
        (186, 26, 36),  # red
        (13, 112, 60),  # green
        (146, 88, 0),  # yellow
        (20, 66, 160),  # blue
        (164, 38, 150),  # magenta
        (0, 112, 138),  # cyan
        _QUIET,
    ],
    bright=[
        _QUIET,
        (214, 58, 30),
        (78, 112, 0),
        (122, 98, 20),
        (40, 100, 220),
        (130, 70, 200),
        (60, 100, 130),
        _INK,
    ],
)

# Strokes from the middle of a character to its sides.
_STROKES = {
    "─": "lr",
    "│": "ud",
    "╭": "rd",
    "┌": "rd",
    "╮": "ld",
    "┐": "ld",
    "╰": "ru",
    "└": "ru",
    "╯": "lu",
    "┘": "lu",
    "├": "rud",
    "┤": "lud",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
    "╴": "l",
    "╶": "r",
    "╵": "u",
    "╷": "d",
}
_SHADES = {"█": 1.0, "▓": 0.75, "▒": 0.5, "░": 0.2}
_TRIANGLES = {"▶": (1, 0), "◀": (-1, 0), "▼": (0, 1), "▲": (0, -1)}
_SHAPES = "".join([*_STROKES, *_SHADES, *_TRIANGLES, "═"])
_WORD = rf"[^\s{_SHAPES}]+"
# One shape, or words up to two spaces: a font of another width can't drift far.
_PARTS = re.compile(rf"[{_SHAPES}]|{_WORD}(?: {_WORD})*|\s+")

Blocks = Callable[[Signs], Iterable[Block]]
Line = list[Segment]
Point = tuple[float, float]
Stroke = tuple[Point, Point, str]


@dataclass(frozen=True, slots=True)
class _Text:
    """Text at the left end of its baseline."""

    text: str
    at: Point
    width: float
    colour: str
    bold: bool


@dataclass(slots=True)
class _Slide:
    """Shapes of a slide.

    Attributes:
        height: Height in pixels; the width is fixed.
        size: Font size in pixels.
        lines: Ends of straight lines, with their colour.
        areas: Corners of filled areas, with their colour and opacity.
    """

    height: float
    size: float
    texts: list[_Text] = field(default_factory=list)
    lines: list[Stroke] = field(default_factory=list)
    areas: list[tuple[Sequence[Point], str, float]] = field(default_factory=list)


def draw_slides(kind: str, title: str, slides: Sequence[Blocks]) -> list[bytes]:
    """Return one picture per slide, all in the same font size.

    Args:
        kind: ``svg`` or ``png``.
        title: Title of an SVG, for readers who can't see it.
        slides: Functions that return the blocks of a slide for a terminal's signs.
    """
    size = 0.0
    rendered: list[list[Line]] = []
    for columns in COLUMNS:
        tried = _rendered(slides, columns)
        by_width, by_height = _font_sizes(tried)
        best = min(LARGEST, by_width, max(SMALLEST, by_height))
        if best > size:
            size, rendered = best, tried
        if by_width < by_height:  # wider lines need a smaller font
            break
    content = size * LEADING * max(map(len, rendered))
    height = max(HEIGHT, content + 2 * MARGIN)
    drawn = []
    for lines in rendered:
        slide = _Slide(round(height), size)
        for row, line in enumerate(lines):
            _add_line(slide, line, (height - content) / 2 + row * LEADING * size)
        slide.lines = _joined(slide.lines)
        drawn.append(_to_svg(slide, title).encode() if kind == "svg" else _to_png(slide))
    return drawn


def _rendered(slides: Sequence[Blocks], columns: int) -> list[list[Line]]:
    """Return the lines of each slide at this width."""
    console = in_memory()
    found = []
    for blocks in slides:
        parts = list(blocks(signs(console)))
        needed = [each.slide_columns for each in parts if isinstance(each, Drawing)]
        console.width = max([columns, *needed])
        drawn = Group(*(draw_block(each, console) for each in parts))
        lines = console.render_lines(drawn, pad=False)
        while lines and not _plain(lines[-1]):
            lines.pop()
        found.append(lines)
    return found


def _plain(line: Line) -> str:
    return "".join(segment.text for segment in line).rstrip()


def _font_sizes(rendered: list[list[Line]]) -> tuple[float, float]:
    """Return the largest font sizes at which all slides fit in width and in height."""
    widest = max((cell_len(_plain(line)) for lines in rendered for line in lines), default=1)
    by_width = (WIDTH - 2 * MARGIN) / (ADVANCE * max(widest, 1))
    return by_width, (HEIGHT - 2 * MARGIN) / (LEADING * max(1, *map(len, rendered)))


# ------------------------------------------------------------------------------------------ shapes


def _add_line(slide: _Slide, line: Line, top: float) -> None:
    """Add the shapes of one line, whose upper edge is at ``top``."""
    column = 0
    for segment in line:
        colour, bold = _looks(segment.style or Style.null())
        for part in _PARTS.findall(printable(segment.text)):
            x = MARGIN + column * ADVANCE * slide.size
            if part in _SHAPES:
                _add_shape(slide, part, (x, top), colour)
            elif part.strip():
                width = cell_len(part) * ADVANCE * slide.size
                at = (x, top + BASELINE * slide.size)
                slide.texts.append(_Text(part, at, width, colour, bold))
            column += cell_len(part)


def _looks(style: Style) -> tuple[str, bool]:
    """Return the colour of a style on white, and whether it is bold."""
    ink = THEME.foreground_color
    colour = style.color.get_truecolor(THEME) if style.color else ink
    if style.dim and colour == ink:  # a colour would be too pale to read
        colour = ColorTriplet(*_QUIET)
    return colour.hex, bool(style.bold)


def _add_shape(slide: _Slide, sign: str, at: Point, colour: str) -> None:
    """Add a character that is drawn: a part of a frame, an arrow or a bar."""
    width, height = ADVANCE * slide.size, LEADING * slide.size
    (left, top), middle = at, at[1] + MIDDLE * slide.size
    right, bottom, centre = left + width, top + height, left + width / 2
    if sign in _SHADES:
        upper, lower = top + GAP * height, bottom - GAP * height
        corners = ((left, upper), (right, upper), (right, lower), (left, lower))
        slide.areas.append((corners, colour, _SHADES[sign]))
    elif sign in _TRIANGLES:
        half, back = 0.3 * slide.size, left if sign == "▶" else right
        tip = left + right - back
        arrow = ((back, middle - half), (back, middle + half), (tip, middle))
        slide.areas.append((arrow, colour, 1.0))
    elif sign == "═":
        for y in (middle - 0.09 * slide.size, middle + 0.09 * slide.size):
            slide.lines.append(((left, y), (right, y), colour))
    else:
        sides = {"l": (left, middle), "r": (right, middle), "u": (centre, top)}
        sides["d"] = (centre, bottom)
        for side in _STROKES[sign]:
            slide.lines.append(((centre, middle), sides[side], colour))


def _joined(lines: Sequence[Stroke]) -> list[Stroke]:
    """Join strokes that touch, because their ends would be visible in a picture of pixels."""
    joined: list[Stroke] = []
    for fixed in (0, 1):  # first the vertical strokes, which have one x, then the horizontal ones
        own = [each for each in lines if each[0][fixed] == each[1][fixed]]
        own.sort(key=lambda each: (each[2], round(each[0][fixed], 1), min(each[0], each[1])))
        last: Stroke | None = None
        for one, other, colour in own:
            start, end = min(one, other), max(one, other)
            if last and last[2] == colour and math.dist(last[1], start) < TOUCHING:
                joined.pop()
                start = last[0]
            last = (start, end, colour)
            joined.append(last)
    return joined


# ------------------------------------------------------------------------------------------- files


def _to_svg(slide: _Slide, title: str) -> str:
    """Return an SVG with plain attributes, which every reader of SVG understands."""
    body = []
    for corners, colour, opacity in slide.areas:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        body.append(f'<polygon points="{points}" fill="{colour}" fill-opacity="{opacity:g}"/>')
    for colour in dict.fromkeys(colour for *_, colour in slide.lines):
        path = "".join(
            f"M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}"
            for (x, y), (u, v), own in slide.lines
            if own == colour
        )
        stroke = f'stroke="{colour}" stroke-width="{slide.size * STROKE:.1f}"'
        body.append(f'<path d="{path}" fill="none" {stroke} stroke-linecap="square"/>')
    for text in slide.texts:
        x, y = text.at
        weight = ' font-weight="bold"' if text.bold else ""
        size = f'textLength="{text.width:.1f}" lengthAdjust="spacingAndGlyphs"'
        body.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {size} fill="{text.colour}"{weight}>'
            f"{escape(text.text)}</text>"
        )
    box = f'width="{WIDTH}" height="{slide.height}" viewBox="0 0 {WIDTH} {slide.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f"<title>{escape(printable(title))}</title>",
            f'<rect width="{WIDTH}" height="{slide.height}" fill="#ffffff"/>',
            f'<g font-family="{FONTS}" font-size="{slide.size:.2f}">',
            *body,
            "</g>",
            "</svg>\n",
        ]
    )


def _to_png(slide: _Slide) -> bytes:
    """Return a PNG, drawn by matplotlib with its own font."""
    from matplotlib import rc_context
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon
    from matplotlib.transforms import IdentityTransform

    # The only transform is from the top to the bottom: a point of the figure is a pixel.
    points = 72 / DPI
    with rc_context({"text.hinting": "none", "font.family": ["DejaVu Sans Mono", "DejaVu Sans"]}):
        figure = Figure(figsize=(WIDTH / DPI, slide.height / DPI), dpi=DPI, facecolor="white")

        def pixel(at: Point) -> Point:
            return at[0], slide.height - at[1]

        how: Any = {"transform": IdentityTransform()}
        for corners, colour, opacity in slide.areas:
            shape = Polygon(list(map(pixel, corners)), color=colour, alpha=opacity, lw=0, **how)
            figure.add_artist(shape)
        ends = [(pixel(one), pixel(other)) for one, other, _ in slide.lines]
        figure.add_artist(
            LineCollection(
                ends,
                colors=[colour for *_, colour in slide.lines],
                linewidths=slide.size * STROKE * points,
                capstyle="projecting",
                **how,
            )
        )
        for text in slide.texts:
            weight = "bold" if text.bold else "normal"
            look: Any = {"color": text.colour, "fontsize": slide.size * points, **how}
            figure.text(*pixel(text.at), text.text, weight=weight, parse_math=False, **look)
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=DPI)
        return memory.getvalue()
