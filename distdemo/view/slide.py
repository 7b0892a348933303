"""Draw blocks as pictures for slides: dark text on white, 1920 × 1080, as SVG or PNG.

Text is set in the largest size at which everything fits. Frames, arrows and bars are drawn as
shapes rather than characters, so they meet in any font. An SVG names fonts but fetches none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len
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
DPI = 100  # of a PNG; matplotlib measures in inches

# Black to white, then their bright forms; all have a contrast of at least 4.5 on white.
_CODES = (
    "1a1c20 ba1a24 0d703c 925800 1442a0 a42696 00708a 555a63",
    "555a63 d63a1e 4e7000 7a6214 2864dc 8246c8 3c6482 1a1c20",
)
_NORMAL, _BRIGHT = ([(*bytes.fromhex(code),) for code in codes.split()] for codes in _CODES)
THEME = TerminalTheme((255, 255, 255), _NORMAL[0], _NORMAL, _BRIGHT)

# Strokes from the middle of a character: to its left, right, upper and lower side.
_ARMS = {"─": "lr", "│": "ud", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud"}
_ARMS |= {**dict.fromkeys("╭┌", "rd"), **dict.fromkeys("╮┐", "ld")}
_ARMS |= {**dict.fromkeys("╰└", "ru"), **dict.fromkeys("╯┘", "lu")}
_SHADES = {"█": 1.0, "░": 0.2}
_SHAPES = "".join([*_ARMS, *_SHADES, "▶═"])
_WORD = rf"[^\s{_SHAPES}]+"
# A shape, or words up to two spaces: a font of another width can't drift far.
_PARTS = re.compile(rf"─+|═+|[{_SHAPES}]|{_WORD}(?: {_WORD})*|\s+")

Blocks = Callable[[Signs], Iterable[Block]]
Line = list[Segment]
Corners = tuple[tuple[float, float], ...]


class _Area(NamedTuple):
    """A filled area."""

    corners: Corners
    colour: str
    opacity: float


class _Text(NamedTuple):
    """Text; ``x`` and ``y`` are the left end of its baseline."""

    text: str
    x: float
    y: float
    width: float
    colour: str
    bold: bool


class _Slide(NamedTuple):
    """Areas and texts of a slide; ``size`` is the font size in pixels."""

    height: int
    size: float
    areas: list[_Area]
    texts: list[_Text]


def _slide(lines: Sequence[Line], size: float, most_lines: int) -> _Slide:
    """Return the slide with these lines; all slides are as high as the one with ``most_lines``."""
    content = size * LEADING * most_lines
    slide = _Slide(round(max(HEIGHT, content + 2 * MARGIN)), size, [], [])
    for row, line in enumerate(lines):
        top = (slide.height - content) / 2 + row * LEADING * size
        left = float(MARGIN)
        for segment in line:
            colour, bold = _looks(segment.style or Style.null())
            for part in _PARTS.findall(printable(segment.text)):
                right = left + cell_len(part) * ADVANCE * size
                if part[0] in _SHAPES:
                    opacity = _SHADES.get(part, 1.0)
                    corners = _corners(part[0], left, right, top, size)
                    slide.areas.extend(_Area(area, colour, opacity) for area in corners)
                elif part.strip():
                    baseline = top + BASELINE * size
                    slide.texts.append(_Text(part, left, baseline, right - left, colour, bold))
                left = right
    return slide


def _corners(shape: str, left: float, right: float, top: float, size: float) -> list[Corners]:
    """Return the areas of a frame's part, an arrow or a bar; frames overlap, so they meet."""
    middle = top + MIDDLE * size
    bottom = top + LEADING * size
    half = STROKE * size / 2
    x = (left + right) / 2
    if shape in _SHADES:
        gap = (bottom - top) / 20  # between bars in two lines
        return [_rectangle(left, top + gap, right, bottom - gap)]
    if shape == "▶":
        return [((left, middle - 0.3 * size), (left, middle + 0.3 * size), (right, middle))]
    if shape == "═":
        lines = (middle - 3 * half, middle + 3 * half)
        return [_rectangle(left, y - half, right, y + half) for y in lines]
    arms = _ARMS[shape]
    from_x, to_x = (left if "l" in arms else x, right if "r" in arms else x)
    from_y, to_y = (top if "u" in arms else middle, bottom if "d" in arms else middle)
    areas = []
    if from_x < to_x:
        areas.append(_rectangle(from_x - half, middle - half, to_x + half, middle + half))
    if from_y < to_y:
        areas.append(_rectangle(x - half, from_y - half, x + half, to_y + half))
    return areas


def _rectangle(left: float, top: float, right: float, bottom: float) -> Corners:
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def _looks(style: Style) -> tuple[str, bool]:
    """Return the colour of a style on white, and whether it is bold."""
    ink = THEME.foreground_color
    colour = style.color.get_truecolor(THEME) if style.color else ink
    if style.dim and colour == ink:  # a colour would be too pale to read
        colour = THEME.ansi_colors[7]
    return f"#{bytes(colour).hex()}", bool(style.bold)


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
        candidate = [_lines(blocks, columns) for blocks in slides]
        widest = max((cell_len(_plain(line)) for lines in candidate for line in lines), default=1)
        by_width = (WIDTH - 2 * MARGIN) / (ADVANCE * max(widest, 1))
        by_height = (HEIGHT - 2 * MARGIN) / (LEADING * max(1, *map(len, candidate)))
        best = min(LARGEST, by_width, max(SMALLEST, by_height))
        if best > size:
            size = best
            rendered = candidate
        if by_width < by_height:  # wider lines need a smaller font
            break
    most_lines = max(map(len, rendered))
    drawn = [_slide(lines, size, most_lines) for lines in rendered]
    if kind == "svg":
        return [_to_svg(slide, title).encode() for slide in drawn]
    return [_to_png(slide) for slide in drawn]


def _lines(blocks: Blocks, columns: int) -> list[Line]:
    """Return the lines of a slide at this width."""
    console = in_memory()
    parts = list(blocks(signs(console)))
    needed = [part.slide_columns for part in parts if isinstance(part, Drawing)]
    console.width = max([columns, *needed])
    lines = console.render_lines(Group(*(draw_block(part, console) for part in parts)), pad=False)
    while lines and not _plain(lines[-1]):
        lines.pop()
    return lines


def _plain(line: Line) -> str:
    return "".join(segment.text for segment in line).rstrip()


def _to_svg(slide: _Slide, title: str) -> str:
    """Return an SVG with plain attributes, which every reader of SVG understands."""
    body = []
    for area in slide.areas:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in area.corners)
        opacity = "" if area.opacity == 1 else f' fill-opacity="{area.opacity:g}"'
        body.append(f'<polygon points="{points}" fill="{area.colour}"{opacity}/>')
    for text in slide.texts:
        weight = ' font-weight="bold"' if text.bold else ""
        size = f'textLength="{text.width:.1f}" lengthAdjust="spacingAndGlyphs"'
        place = f'x="{text.x:.1f}" y="{text.y:.1f}" {size} fill="{text.colour}"{weight}'
        body.append(f"<text {place}>{escape(text.text)}</text>")
    box = f'width="{WIDTH}" height="{slide.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {WIDTH} {slide.height}">',
            f"<title>{escape(printable(title))}</title>",
            f'<rect {box} fill="#ffffff"/>',
            f'<g font-family="{FONTS}" font-size="{slide.size:.2f}">',
            *body,
            "</g>",
            "</svg>\n",
        ]
    )


def _to_png(slide: _Slide) -> bytes:
    """Return a PNG, drawn by matplotlib with its own font."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon
    from matplotlib.transforms import Affine2D

    # A point of the figure is a pixel; the only transform turns it upside down.
    how: Any = {"transform": Affine2D().scale(1, -1).translate(0, slide.height)}
    with rc_context({"text.hinting": "none", "font.family": ["DejaVu Sans Mono", "DejaVu Sans"]}):
        figure = Figure(figsize=(WIDTH / DPI, slide.height / DPI), dpi=DPI, facecolor="white")
        for area in slide.areas:
            look: Any = {"color": area.colour, "alpha": area.opacity, "lw": 0}
            figure.add_artist(Polygon(list(area.corners), **look, **how))
        for text in slide.texts:
            look = {"color": text.colour, "fontsize": slide.size * 72 / DPI}
            look["weight"] = "bold" if text.bold else "normal"
            figure.text(text.x, text.y, text.text, parse_math=False, **look, **how)
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=DPI)
        return memory.getvalue()
