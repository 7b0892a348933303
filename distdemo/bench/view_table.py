"""A measurement as people read it: a table a series, side by side, the reasons, the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.old_records import BenchReport, Series
from distdemo.bench.view_below import below, legend
from distdemo.bench.view_beside import beside
from distdemo.bench.view_columns import series_table
from distdemo.bench.view_marks import spelled
from distdemo.bench.view_names import moves, title
from distdemo.bench.view_terminal_plot import terminal_plot
from distdemo.bench.view_verdict import average_line, verdict_line
from distdemo.demo.holdings import HOST
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.numbers import duration

__all__ = ["bench_table", "verdict_line"]

CLOCKS = {HOST: "the host's clock"}
"""What timed a call, in words; others speak for themselves."""


def bench_table(report: BenchReport, console: Console) -> Group:
    """A measurement, whole or as far as it went; the verdict comes last.

    Why a world failed is not in it but for the verdict: ``failure`` shows that.

    Args:
        report: of it.
        console: that it will be printed on.
    """
    sign = signs(console)
    parts: list[RenderableType] = []
    for place, series in enumerate(report.series):
        parts += [Text()] if place else []
        parts += _series(series, console)
    parts += beside(report, console)
    drawn = terminal_plot(report, console)
    parts += [drawn] if drawn is not None else []
    parts += below(report, console)
    parts += _end(report, sign)
    return Group(*parts)


def _series(series: Series, console: Console) -> Iterator[RenderableType]:
    """Its heading, its rows, and why there are none or no more."""
    sign = signs(console)
    yield heading(title(series.spec, sign.dot))
    if series.spec.refused:
        why = spelled(series.spec.refused.rstrip("."), sign)
        yield Text(f"{sign.none} Not measured: {why}.", style=colours.QUIET)
    if series.rows:
        table, left_out = series_table(series.rows, console)
        yield table
        told = legend(left_out, sign, unsteady=any(not row.steady for row in series.rows))
        yield from [told] if told is not None else []
    yield from _sources(series)
    if series.error:
        yield Text(f"{sign.wrong} {spelled(series.error, sign)}", style=colours.WRONG)


def _sources(series: Series) -> Iterator[Text]:
    """What the columns of bandwidth mean for this op; of what moves no data only the clock."""
    if not (series.rows and series.formula):
        return
    if not moves(series.spec):
        clock = CLOCKS.get(series.clock, series.clock)
        yield from [Text(f"Timed by {clock}.", style=colours.QUIET)] if clock else []
        return
    payload = f"; S is {series.payload_words}" if series.payload_words else ""
    clock = f"; timed by {CLOCKS.get(series.clock, series.clock)}" if series.clock else ""
    text = f"algbw is S / median, busbw is {_times(series.formula)}algbw{payload}{clock}."
    yield Text(text, style=colours.QUIET)


def _times(formula: str) -> str:
    return "" if formula == "1" else f"{formula} × "


def _end(report: BenchReport, sign: Signs) -> Iterator[RenderableType]:
    """How long it took and with what; the verdict, and the average."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    took = f"{duration(report.seconds)}{_where(report, sign)}"
    yield Text("\n".join(filter(None, [took, versions])), style=colours.QUIET)
    average = average_line(report)
    yield verdict_line(report, sign)
    yield from [average] if average is not None else []


def _where(report: BenchReport, sign: Signs) -> str:
    """The host and its processor, if the environment tells."""
    names = ("host", "processor", "cpu")
    found = [str(report.environment[name]) for name in names if report.environment.get(name)]
    return "".join(f" {sign.dot} {text}" for text in found)
