"""The columns of a series' table, and which of them a narrow terminal goes without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from distdemo.bench.old_records import Row
from distdemo.bench.view_marks import marks
from distdemo.bench.view_numbers import half_width, percent, rate, size_text
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.grid import Cell, Column, Grid, widest
from distdemo.view.numbers import duration

UNSURE = "yellow"
NORMAL = ("close to the limit", "latency-bound")
"""Verdicts that are as it should be."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A column.

    Attributes:
        name: its head.
        cell: of a row.
        goes: the column with the highest number goes first where there is no room; 0 stays.
        told: whether any row has something to tell in it.
    """

    name: str
    cell: Callable[[Row, Signs], Cell]
    goes: int = 0
    told: Callable[[Row], bool] = lambda _: True
    right: bool = True


def series_table(rows: Sequence[Row], console: Console) -> tuple[Table | Group, Sequence[str]]:
    """The rows as a table, or on narrow terminals as a list; and the columns left out.

    Args:
        rows: at least one.
        console: that it will be printed on.
    """
    sign = signs(console)
    told = [figure for figure in FIGURES if any(map(figure.told, rows))]
    shown = list(told)
    while widest(console, _grid(shown, rows, sign).table()) > console.width:
        goes = max(shown, key=lambda figure: figure.goes)
        if not goes.goes:
            return _list(told, rows, sign)
        shown.remove(goes)
    left_out = [figure.name for figure in told if figure not in shown]
    return _grid(shown, rows, sign).table(), left_out


def _list(told: Sequence[Figure], rows: Sequence[Row], sign: Signs) -> tuple[Group, Sequence[str]]:
    """A line or two a size: median, interval and busbw; what is to be said of it."""
    lines = []
    for row in rows:
        head = Text(f"{size_text(row.size)}: ", style="bold")
        interval = interval_cell(row, sign)
        interval.rstrip()
        median = Text.assemble((duration(row.median), "not bold"), " ", interval)
        lines += [
            head + median + Text(f" {rate(row.busbw)} GB/s" if row.size else ""),
            *_remarks(row, sign),
        ]
    left_out = [figure.name for figure in told if figure.goes > LISTED]
    return Group(*lines), left_out


def _remarks(row: Row, sign: Signs) -> list[Text]:
    """Wrong elements, the verdict and the share of the limit; nothing where there is nothing."""
    parts = [Text.assemble(_wrong(row, sign), " wrong")] if row.wrong else []
    if row.judgement is not None:
        parts.append(_verdict(row, sign))
        parts += [Text.assemble(_limit(row, sign), " of limit")] if row.judgement.share else []
    parts += [Text.assemble(_hidden(row, sign), " hidden")] if row.overlap else []
    told = Text(", ").join(part for part in parts if part)
    return [Text("  ") + told] if told else []


def _grid(shown: Sequence[Figure], rows: Sequence[Row], sign: Signs) -> Grid:
    half = marks(sign).half
    columns = [Column(half if f.name == "±" else f.name, right=f.right) for f in shown]
    return Grid(columns, [[figure.cell(row, sign) for figure in shown] for row in rows])


def interval_cell(row: Row, sign: Signs) -> Text:
    """Half the interval's width, marked where it is wider than was asked for."""
    mark = marks(sign)
    width = half_width(row, mark.half)
    if not width:
        return Text(sign.none, style=colours.QUIET)
    if row.steady:
        return Text(f"{width} ")
    return Text(f"{width}{mark.unsteady}", style=UNSURE)


def _limit(row: Row, sign: Signs) -> Cell:
    share = _share(row)
    return Text(sign.none, style=colours.QUIET) if share is None else percent(share)


def _share(row: Row) -> float | None:
    return row.judgement.share if row.judgement else None


def _is_judged(row: Row) -> bool:
    return row.judgement is not None and bool(row.judgement.kind)


def _wrong(row: Row, sign: Signs) -> Cell:
    if row.wrong:
        return Text(f"{sign.wrong} {row.wrong:,}", style=colours.WRONG)
    return "0" if row.checked else Text(sign.none, style=colours.QUIET)


def _verdict(row: Row, _: Signs) -> Text:
    kind = row.judgement.kind if row.judgement else ""
    return Text(kind, style="" if kind in NORMAL else UNSURE)


def _hidden(row: Row, sign: Signs) -> Cell:
    return sign.none if row.overlap is None else percent(row.overlap.hidden)


def _time(pick: Callable[[Row], float]) -> Callable[[Row, Signs], Cell]:
    return lambda row, _: duration(pick(row))


LISTED = 3
"""What goes before this is not in a list, either."""
FIGURES: Sequence[Figure] = (
    Figure("Size", lambda row, _: Text(size_text(row.size), style="bold")),
    Figure("Median", _time(lambda row: row.median)),
    Figure("±", interval_cell),
    Figure("min", _time(lambda row: row.fastest), goes=9),
    Figure("p10", _time(lambda row: row.p10), goes=7),
    Figure("p90", _time(lambda row: row.p90), goes=6),
    Figure("p99", _time(lambda row: row.p99), goes=4),
    Figure("max", _time(lambda row: row.slowest), goes=8),
    Figure("algbw\nGB/s", lambda row, _: rate(row.algbw), goes=5, told=lambda row: row.size > 0),
    Figure("busbw\nGB/s", lambda row, _: rate(row.busbw), told=lambda row: row.size > 0),
    Figure("of\nlimit", _limit, goes=2, told=lambda row: _share(row) is not None),
    Figure("Hidden", _hidden, goes=1, told=lambda row: bool(row.overlap)),
    Figure("Wrong", _wrong),
    Figure("Verdict", _verdict, goes=3, told=_is_judged, right=False),
)
