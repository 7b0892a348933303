"""Blocks of a report, and their forms: terminal, text file and Markdown.

A view is a function of a record and the terminal's signs. It yields blocks and draws nothing, so
every command has every format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.view import colours
from distdemo.view.console import Signs, as_text, can_redraw, show, signs
from distdemo.view.foreign import printable
from distdemo.view.tables import WIDTHS, Grid, fitting

# CommonMark's and GitHub's markup, where it would have an effect within a line.
_MARKUP = re.compile(
    r"[\\`*<|~&]|(?<!\w)_|_(?!\w)|(?<=\])\(|^[^\S\n]*(?:[#>+=-]|\d+[.)](?=\s))", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Heading:
    """Heading of what follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines of text; an empty one is a blank line.

    Attributes:
        text: Text; `Text` if parts of it have their own style.
        style: Style of the whole, ``colours.QUIET`` for notes.
        verbatim: True for lines to copy, such as tracebacks: they are never wrapped.
        is_problem: True if ``--quiet`` prints it, too.
        is_detail: True if only ``--verbose`` prints it.
    """

    text: Text | str = ""
    style: str = ""
    verbatim: bool = False
    is_problem: bool = False
    is_detail: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict: what ``--quiet`` prints.

    Attributes:
        ok: True if everything succeeded; None if that is undecided.
        mark: Sign of an undecided verdict, such as ``!`` for warnings.
    """

    text: str
    ok: bool | None = True
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table whose cells depend on the room for a tensor.

    Attributes:
        draw: Function that returns the table for a maximal width of a tensor's cell.
    """

    draw: Callable[[int], Grid]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with a text each, one per row without a frame."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture made of characters.

    Attributes:
        draw: Function that returns it for a console; its width and encoding matter.
        play: Function that plays it on a terminal that can_redraw, instead; None if nothing moves.
    """

    draw: Callable[[Console], RenderableType]
    play: Callable[[Console], None] | None = None


Block = Heading | Paragraph | Summary | Grid | Fitted | Facts | Drawing
View = Callable[[Any, Signs], Iterable[Block]]
"""Function of a record and the terminal's signs."""


def quiet(blocks: Iterable[Block]) -> list[Block]:
    """Return the summaries and the problems, or all blocks if there is none."""
    every = list(blocks)
    return [
        block
        for block in every
        if isinstance(block, Summary) or (isinstance(block, Paragraph) and block.is_problem)
    ] or every


def without_details(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks that are printed without ``--verbose``."""
    for block in blocks:
        if isinstance(block, Grid):
            yield block.without_details()
        elif isinstance(block, Fitted):
            yield Fitted(partial(_without_details, block.draw))
        elif not (isinstance(block, Paragraph) and block.is_detail):
            yield block


def _without_details(draw: Callable[[int], Grid], width: int) -> Grid:
    """Return the table of a `Fitted` without its details."""
    return draw(width).without_details()


def show_blocks(
    console: Console,
    blocks: Iterable[Block],
    before_verdict: Callable[[], object] = lambda: None,
) -> None:
    """Print a report on a console. Call ``before_verdict`` before a verdict is printed."""
    drawn = [(block, draw_block(block, console)) for block in blocks]  # before any is printed
    for block, renderable in drawn:
        if isinstance(block, Drawing) and block.play is not None and can_redraw(console):
            block.play(console)
            continue
        if isinstance(block, Summary):
            before_verdict()
        show(console, renderable, wrap=not (isinstance(block, Paragraph) and block.verbatim))


def draw_block(block: Block, console: Console) -> RenderableType:
    """Return the block as a Rich renderable for this console."""
    if isinstance(block, Heading):
        return Text(block.text, style="bold")
    if isinstance(block, Paragraph):
        return block.text if isinstance(block.text, Text) else Text(block.text, block.style)
    if isinstance(block, Summary):
        return _verdict(block, signs(console))
    if isinstance(block, Grid):
        return fitting(console, lambda _: block)
    if isinstance(block, Fitted):
        return fitting(console, block.draw)
    if isinstance(block, Facts):
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in block.rows:
            table.add_row(Text(f" {name} ", style="bold"), text)
        return table
    return block.draw(console)


def _verdict(block: Summary, sign: Signs) -> Text:
    if block.ok is None:
        style = colours.UNSURE if block.mark else ""
        return Text(f"{block.mark} {block.text}".lstrip(), style=style)
    mark, style = (sign.right, colours.RIGHT) if block.ok else (sign.wrong, colours.WRONG)
    return Text(f"{mark} {block.text}", style=style)


# --------------------------------------------------------------------------------------- Markdown


def to_markdown(blocks: Iterable[Block], sign: Signs) -> str:
    """Return a report as GitHub's Markdown, for job summaries and comments of CI."""
    parts = (part for block in blocks for part in _markdown(block, sign))
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block, sign: Signs) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"### {_escaped(block.text)}"
    elif isinstance(block, Summary):
        yield f"**{_escaped(_verdict(block, sign).plain)}**"
    elif isinstance(block, Paragraph) and block.verbatim:
        yield _fenced(_plain(block.text))
    elif isinstance(block, Paragraph):
        lines = _escaped(_plain(block.text).strip("\n"))
        if lines.strip():
            bold = "**" if block.style == colours.WRONG else ""
            yield bold + lines.replace("\n", "\\\n") + bold
    elif isinstance(block, Facts):
        yield "\n".join(f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in block.rows)
    elif isinstance(block, Drawing):
        yield _fenced(as_text(lambda console: show(console, block.draw(console))))
    else:
        grid = block if isinstance(block, Grid) else block.draw(WIDTHS[0])
        if grid.rows:
            yield "\n".join(f"| {' | '.join(cells)} |" for cells in _table(grid))


def _table(grid: Grid) -> Iterator[list[str]]:
    """Yield the cells of each line of a table; short rows are filled with empty cells."""
    columns = grid.columns
    missing = [""] * len(columns)
    yield [_cell(column.name) for column in columns]
    yield ["---:" if column.right else "---" for column in columns]
    for row in grid.rows:
        yield [_cell(cell) for cell in [*row, *missing[len(row) :]]]


def _cell(cell: Text | str) -> str:
    return _escaped(_plain(cell)).replace("\n", "<br>")


def _fenced(text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.strip(chr(10))}\n{fence}"


def _plain(text: Text | str) -> str:
    return printable(text.plain if isinstance(text, Text) else text)


def _escaped(text: str) -> str:
    """Escape markup, so that foreign text stays text."""
    return _MARKUP.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", printable(text.strip()))
