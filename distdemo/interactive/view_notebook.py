"""Show a cell in a notebook: as HTML tables in the order of ranks, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from rich.text import Text

from distdemo.calls.text import rank_label
from distdemo.interactive.records import CellReport, RanksText
from distdemo.interactive.view import aligned, cell_view, outcome_view
from distdemo.view import colours
from distdemo.view.blocks import Block, Fitted, Paragraph, draw_block, show_blocks
from distdemo.view.console import Signs, recorder
from distdemo.view.foreign import printable
from distdemo.view.tables import WIDTHS, Column, Grid

WIDTH = 100  # of the text
LEFT = "text-align:left;vertical-align:top"
CODE = "white-space:pre;font-family:monospace"


class CellInNotebook:
    """Result of a cell, in the forms that a notebook asks for.

    Args:
        cell: Report on the cell.
        printed: Output of the ranks.
    """

    def __init__(self, cell: CellReport, printed: tuple[RanksText, ...] = ()) -> None:
        self._cell = cell
        self._printed = printed

    def __repr__(self) -> str:
        """Return it as text."""
        console = recorder(WIDTH)
        blocks = [Paragraph(aligned(self._printed), verbatim=True)] if self._printed else []
        show_blocks(console, [*blocks, *cell_view(self._cell, Signs())])
        return console.export_text().rstrip()

    def _repr_html_(self) -> str:
        return "".join(map(_html, self._blocks()))

    def _blocks(self) -> Iterator[Block]:
        for name, texts in (("Printed", self._printed), ("Value", self._cell.values)):
            if texts:
                grid = Grid([Column(""), Column(name)])
                grid.rows += [[_label(each), each.text] for each in texts]
                yield grid
        yield from outcome_view(self._cell, Signs())


def _label(text: RanksText) -> Text:
    """Return the ranks that have a text; a single one in its colour."""
    style = colours.of_rank(text.ranks[0]) if len(text.ranks) == 1 else ""
    return Text(rank_label(text.ranks), style)


def _html(block: Block) -> str:
    """Return a block as HTML."""
    if isinstance(block, Fitted):
        block = block.draw(WIDTHS[0])
    if isinstance(block, Grid):
        heads = _cells("th", (column.name for column in block.columns))
        rows = "".join(f"<tr>{_cells('td', row)}</tr>" for row in block.rows)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    text = draw_block(block, recorder(WIDTH))
    assert isinstance(text, Text)  # cells have no other blocks
    is_code = isinstance(block, Paragraph) and block.verbatim
    style = CODE if is_code else "white-space:pre-wrap"
    return f'<div style="{style}">{_spans(text)}</div>'


def _cells(tag: str, row: Iterable[Text | str]) -> str:
    style = f"{LEFT};{CODE}" if tag == "td" else LEFT
    return "".join(f'<{tag} style="{style}">{_spans(cell)}</{tag}>' for cell in row)


def _spans(text: Text | str) -> str:
    """Return a text as HTML, its styles as CSS."""
    console = recorder(WIDTH)
    spans = []
    for part, style, _ in Text.assemble(text).render(console):  # its own style becomes a span
        css = "" if style is None else style.get_html_style()
        shown = escape(printable(part))
        spans.append(f'<span style="{css}">{shown}</span>' if css else shown)
    return "".join(spans)
