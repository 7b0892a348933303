"""The columns of a contest's tables, and which of them a narrow terminal goes without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.bench.view_marks import marks
from distdemo.trace.contending import Arena, CompareReport, Contender
from distdemo.trace.scheduling import Counts
from distdemo.trace.view_amounts import mark, said, short_bytes, times, took
from distdemo.trace.view_standings import (
    fastest,
    formula_state,
    handed_state,
    is_wrong,
    name,
    ratio,
)
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.grid import Cell, Column, Grid, widest

STYLES = {"different": colours.WRONG, "unequal": "yellow"}


@dataclass(frozen=True, slots=True)
class Ring:
    """What a cell may need to know besides its row.

    Attributes:
        best: the row of the fastest, or None.
    """

    report: CompareReport
    arena: Arena
    best: Contender | None
    sign: Signs


@dataclass(frozen=True, slots=True)
class Figure:
    """A column.

    Attributes:
        name: its head.
        cell: of a row; None: there is nothing to say.
        goes: the column with the highest number goes first where there is no room; 0 stays.
        right: numbers stand at the right.
    """

    name: str
    cell: Callable[[Contender, Ring], Cell | None]
    goes: int = 0
    right: bool = True


def tables(report: CompareReport, arena: Arena, console: Console) -> Iterator[RenderableType]:
    """Costs and times in one table where there is room, else in two, and else in a list."""
    ring = Ring(report, arena, fastest(arena), signs(console))
    whole = _told([WHO, *COSTS, *TIMES], arena.contenders, ring)
    wide = _grid(whole, arena.contenders, ring).table()
    if widest(console, wide) <= console.width:
        yield wide
        return
    counted = [each for each in arena.contenders if each.counts is not None]
    halves: list[tuple[Sequence[Figure], Sequence[Contender], Ring]]
    halves = [(TIMES, arena.contenders, ring), (COSTS, counted, replace(ring, best=None))]
    if report.simulated:
        halves = [((*COSTS, *TIMES), arena.contenders, ring)]
    told = [(_told([WHO, *figures], rows, each), rows, each) for figures, rows, each in halves]
    found = [_fitted(*each, console) for each in told if len(each[0]) > 1]
    drawn = [each for each in found if each is not None]
    yield from drawn if len(drawn) == len(found) else _listed(whole, ring)


def _told(figures: Sequence[Figure], rows: Sequence[Contender], ring: Ring) -> list[Figure]:
    """The columns in which any row has something to say."""
    return [each for each in figures if any(each.cell(row, ring) is not None for row in rows)]


def _fitted(
    figures: Sequence[Figure], rows: Sequence[Contender], ring: Ring, console: Console
) -> Table | None:
    """A table without the columns that there is no room for; None: it would have to lose more."""
    shown = list(figures)
    while widest(console, table := _grid(shown, rows, ring).table()) > console.width:
        goes = max(shown, key=lambda figure: figure.goes)
        if not goes.goes:
            return None
        shown.remove(goes)
    return table


def _listed(figures: Sequence[Figure], ring: Ring) -> Iterator[Text]:
    """A line with the name of each row, and under it one with all that there is to say."""
    for row in ring.arena.contenders:
        cells = [(each.name, each.cell(row, ring)) for each in figures]
        yield Text.assemble(*(cell for _, cell in cells[:1] if cell is not None), style="bold")
        told = [
            Text(f"{said(name, ring.sign)} ", style=colours.QUIET) + _text(cell)
            for name, cell in cells[1:]
            if cell is not None
        ]
        yield Text("    ") + Text(", ").join(told)


def _text(cell: Cell) -> Text:
    return Text(cell, style="not dim") if isinstance(cell, str) else cell


def _grid(figures: Sequence[Figure], rows: Sequence[Contender], ring: Ring) -> Grid:
    none = Text(ring.sign.none, style=colours.QUIET)
    columns = [Column(said(each.name, ring.sign), right=each.right) for each in figures]
    return Grid(columns, [[each.cell(row, ring) or none for each in figures] for row in rows])


# ------------------------------------------------------------------------------------------- cells


def _who(row: Contender, ring: Ring) -> Cell:
    """The fastest has a star; the others are put under its name."""
    lead = f"{marks(ring.sign).best} " if row is ring.best else "  " if ring.best else ""
    style = "bold" if row is ring.best else colours.WRONG if is_wrong(row) else ""
    return Text(f"{lead}{name(row, ring.report)}", style=style)


def _of_counts(pick: Callable[[Counts], str]) -> Callable[[Contender, Ring], Cell | None]:
    return lambda row, _: None if row.counts is None else pick(row.counts)


def _state(state: Callable[[Contender], str]) -> Callable[[Contender, Ring], Cell | None]:
    def cell(row: Contender, ring: Ring) -> Cell | None:
        how = state(row)
        return Text(mark(how, ring.sign), style=STYLES.get(how, "")) if how else None

    return cell


def _median(row: Contender, ring: Ring) -> Cell | None:
    if row.refused:
        return Text("not run", style="yellow")
    if row.timing is None:
        return None
    return Text(took(row.timing.median), style="bold" if row is ring.best else "")


def _interval(row: Contender, _: Ring) -> Cell | None:
    """Half its width as a share of the median; one wider than that says no more."""
    if row.timing is None or row.timing.median <= 0:
        return None
    share = (row.timing.high - row.timing.low) / 2 / row.timing.median
    return ">100%" if share > 1 else f"{100 * share:.{1 if share < 0.0995 else 0}f}%"


def _seconds(
    pick: Callable[[Contender], float | None],
) -> Callable[[Contender, Ring], Cell | None]:
    def cell(row: Contender, _: Ring) -> Cell | None:
        found = pick(row)
        return None if found is None else took(found)

    return cell


def _beside_own(row: Contender, ring: Ring) -> Cell | None:
    value = ratio(row, ring.arena)
    return None if value is None else said(times(value), ring.sign)


def _right(row: Contender, ring: Ring) -> Cell | None:
    if row.timing is None:
        return None
    if row.timing.wrong:
        text = f"{ring.sign.wrong} {row.timing.wrong:,} of {row.timing.checked:,}"
        return Text(text, style=colours.WRONG)
    return Text(ring.sign.right if row.timing.checked else ring.sign.none)


WHO = Figure("Algorithm", _who, right=False)
COSTS = (
    Figure("Rounds", _of_counts(lambda counts: f"{counts.rounds:,}")),
    Figure("Sent", _of_counts(lambda counts: short_bytes(counts.sent_most))),
    Figure("Busiest", _of_counts(lambda counts: short_bytes(counts.busiest))),
    Figure("In all", _of_counts(lambda counts: short_bytes(counts.total))),
    Figure("Formula", _state(formula_state), goes=8),
    Figure("Run", _state(handed_state), goes=7),
)
"""Counted from the schedule, bytes of the rank that sends most and of the busiest one; then
whether that is what the formulas give, and what the run handed to the backend."""
TIMES = (
    Figure("Median", _median),
    Figure("±", _interval, goes=9),
    Figure("α–β", _seconds(lambda row: row.predicted)),
    Figure("Shared", _seconds(lambda row: row.shared), goes=2),
    Figure("× own", _beside_own, goes=1),
    Figure("Right", _right),
)
"""Measured and predicted."""
