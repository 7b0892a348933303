"""Which rank comes late, and by how much: a table a series."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from distdemo.bench.old_records import BenchReport, RankSkew, Series
from distdemo.bench.view_marks import marks
from distdemo.bench.view_names import labels
from distdemo.bench.view_numbers import percent
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Cell, Column, Grid, fitting
from distdemo.view.numbers import duration
from distdemo.view.selection import select

COLUMNS = ("Rank", "Comes late by", "p99", "Last in", "Op took", "Waited")


def skew_parts(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """A table for each series that has it, and who is named, in a sentence."""
    for name, series in zip(labels(report.series), report.series, strict=True):
        if not series.skew:
            continue
        lead = f": {name}" if len(report.series) > 1 else ""
        yield Text()
        yield heading(f"Who comes late{lead}")
        grid = _grid(series, signs(console))
        yield fitting(console, lambda _, grid=grid: grid)  # type: ignore[misc]  # bound at once
        yield _found(series, signs(console))


def _grid(series: Series, sign: Signs) -> Grid:
    grid = Grid([Column(name, right=True) for name in COLUMNS])
    for each in select(series.skew, None, lambda one: one.named):
        grid.rows.append([sign.more] if isinstance(each, int) else _row(each, sign))
    return grid


def _row(each: RankSkew, sign: Signs) -> list[Cell]:
    lead = f"{marks(sign).named} " if each.named else ""
    style = colours.WRONG if each.named else ""
    return [
        Text(lead, style=style) + Text(str(each.rank), style=colours.of_rank(each.rank)),
        Text(duration(each.late), style=style),
        duration(each.late_p99),
        percent(each.last),
        duration(each.took),
        duration(each.waited),
    ]


def _found(series: Series, sign: Signs) -> Text:
    """Who is named, with the figures; or that nobody is."""
    named = [each for each in series.skew if each.named]
    if not named:
        return Text(f"{sign.right} No rank comes late often and by much.", style=colours.RIGHT)
    told = [
        f"rank {each.rank} comes {duration(each.late)} late and is the last in "
        f"{percent(each.last)} of the iterations"
        for each in named
    ]
    line = f"{marks(sign).named} The others wait: {'; '.join(told)}."
    return Text(line, style=colours.WRONG)
