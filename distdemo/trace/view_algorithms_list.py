"""All algorithms by op: how, what they cost, and where that is from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.trace.scheduling import About
from distdemo.trace.view_amounts import LETTERS, said
from distdemo.trace.view_count_records import about_entry
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.document import Json, envelope
from distdemo.view.frame import heading
from distdemo.view.grid import Cell, Column, Grid, fitting

SHOWN = {"Rounds": "rounds", "Sent by a rank, most": "sent", "In all": "total"}
"""Heads of columns, and the formulas in them."""
Named = Sequence[tuple[str, About]]
HINT = "distdemo trace OP -a NAME shows one round by round; --compare runs all of an op's."


def list_view(abouts: Named, console: Console) -> Group:
    """A table an op, its first algorithm being the one that is taken unless another is named.

    Args:
        abouts: torch's name of the op, and an algorithm of it, in order.
        console: that it will be printed on.
    """
    sign = signs(console)
    parts: list[RenderableType] = []
    for op, found in by_op(abouts).items():
        parts += [heading(op.replace("_", "-")), _table(found, console), *_words(found, sign)]
        parts.append(Text())
    letters = "; ".join([*LETTERS.values(), "B: bytes of one rank's tensor, or of all n parts"])
    parts += [Text(said(f"{letters}.", sign), style=colours.QUIET)]
    return Group(*parts, Text(HINT, style=colours.QUIET))


def by_op(abouts: Named) -> dict[str, list[About]]:
    """In the order in which the ops come."""
    found: dict[str, list[About]] = {}
    for op, about in abouts:
        found.setdefault(op, []).append(about)
    return found


def _table(found: Sequence[About], console: Console) -> RenderableType:
    sign = signs(console)
    columns = [Column("Algorithm"), *(Column(head, folds=True) for head in SHOWN)]
    rows: list[list[Cell]] = []
    for about in found:
        formulas = dict(about.formulas)
        cells = [said(formulas.get(name, sign.none), sign) for name in SHOWN.values()]
        rows.append([Text(about.name, style="bold"), *cells])
    return fitting(console, lambda _: Grid(columns, rows))


def _words(found: Sequence[About], sign: Signs) -> Iterator[Text]:
    """How each does it, and its source."""
    for about in found:
        name = Text(f"{about.name}: ", style="bold")
        yield name + Text(said(about.summary, sign), style="not bold")
        yield Text(f"  {said(about.source.rstrip('.'), sign)}.", style=colours.QUIET)


def list_document(abouts: Named) -> dict[str, Json]:
    """The same as a JSON document, with all formulas."""
    return envelope(
        "trace",
        ok=True,
        mode="list",
        algorithms=[{"op": op} | about_entry(about) for op, about in abouts],
        letters={letter: text.partition(": ")[2] or text for letter, text in LETTERS.items()},
    )
