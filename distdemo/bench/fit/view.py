"""Report and plot of fitted models and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from distdemo.bench.fit.fit import GOOD, Fit, FitReport, FittedSeries, Prediction
from distdemo.view import colours
from distdemo.view.blocks import Block, Bullets, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import duration, exact_size, listing, percent, plural, rate, short_size
from distdemo.view.plot import Axis, Panel, PlotLine, lines
from distdemo.view.tables import Column, Grid

ASSUMPTIONS = (
    "Every message costs the measured α plus β per byte, within a machine and between machines.",
    "Simultaneous messages share no link.",
    "All ranks start at once, none is late, and rounds don't overlap.",
    "The cost of reducing and of sharing cores, part of α and β, stays as measured.",
    "The backend uses the named algorithm; whether it does is unknown.",
)
"""Assumptions of every prediction."""


def fit_view(report: FitReport, sign: Signs) -> Iterator[Block]:
    """Yield the fits of every series, the predictions with their assumptions, and the verdicts."""
    for series in report.series:
        yield from _algorithms(series, sign)
        yield Paragraph()
    for prediction in report.predictions:
        yield from _prediction(prediction)
        yield Paragraph()
    if report.predictions:
        yield Paragraph("Assumptions:", colours.QUIET)
        yield Bullets(tuple(Text(assumption, colours.QUIET) for assumption in ASSUMPTIONS))
        yield Paragraph()
    for note in report.notes:
        yield Paragraph(note, colours.QUIET)
    for series in report.series:
        best = series.best
        fits = "fits" if best.is_good else "does not fit"
        error = f"median error {percent(best.median_error)}"
        text = f"{_name(series)}: {best.algorithm} {fits}, {link_text(best)}, {error}."
        yield Summary(text, best.is_good or None, "!")


def link_text(fit: Fit) -> str:
    """Return ``α = 30.0 µs, 1/β = 2.00 GB/s``."""
    return f"α = {duration(fit.alpha_s)}, 1/β = {_bandwidth(fit)}"


def _bandwidth(fit: Fit) -> str:
    return rate(1 / fit.beta_s_per_byte) if fit.beta_s_per_byte > 0 else "unlimited"


def _name(series: FittedSeries) -> str:
    ranks = listing([str(n) for n in series.ranks])
    return f"{series.spec.title(ranks=False)}, {ranks} ranks"


def _algorithms(series: FittedSeries, sign: Signs) -> Iterator[Block]:
    """Yield every algorithm of a series; with one number of ranks only the chosen one."""
    best = series.best
    figures = [Column(name, right=True) for name in ("α", "1/β", "Error", "Largest")]
    grid = Grid([Column("Algorithm"), *figures])
    for fit in series.fits if len(series.ranks) > 1 else [best]:
        chosen = fit is best
        name = Text(f"{sign.arrow if chosen else ' '} {fit.algorithm}", "bold" * chosen)
        errors = (percent(fit.median_error), percent(fit.max_error))
        grid.rows.append([name, duration(fit.alpha_s), _bandwidth(fit), *errors])
    yield Heading(_name(series))
    yield grid
    yield Paragraph(f"{sign.arrow} {best.algorithm}: {best.source}.")
    if series.assumed:
        text = (
            f"The usual algorithm, {best.algorithm}, is assumed: these times don't distinguish "
            "algorithms. Add files with other numbers of ranks, or use --algorithm."
        )
        yield Paragraph(text, colours.UNSURE)
    if not best.is_good:
        text = (
            f"! The model doesn't fit: half of its times are off by more than {percent(GOOD)}. "
            "Possible causes: a different algorithm, one that changes with the size, or ranks that "
            "share cores. Nothing is predicted from it."
        )
        yield Paragraph(text, colours.UNSURE)


def _prediction(prediction: Prediction) -> Iterator[Block]:
    """Yield one row per algorithm and one column per size, with the fastest of each size marked."""
    where = f"{prediction.spec.title(ranks=False)} on {plural(prediction.ranks, 'rank')}"
    yield Heading(f"Prediction, not measured: {where}")
    sizes = [Column(exact_size(row.size_bytes), right=True) for row in prediction.rows]
    grid = Grid([Column("Algorithm"), *sizes])
    names = list(prediction.rows[0].predicted_s)
    for name in names:
        times = (
            f"{'★ ' * (name == row.fastest and len(names) > 1)}{duration(row.predicted_s[name])}"
            for row in prediction.rows
        )
        grid.rows.append([name, *times])
    yield grid


def plot(report: FitReport, file: Path | None) -> bytes:
    """Return the plot of measured times and fitted curves against size.

    Args:
        report: A report with at least one series.
        file: File that it will be written to; its suffix determines the format.
    """
    drawn: list[PlotLine] = []
    for series in report.series:
        model = dict(zip(series.points, series.best.residuals, strict=True))
        for n in series.ranks:
            points = [point for point in series.points if point.ranks == n]
            name = f"{series.spec.title(ranks=False)}, {n} ranks"
            hue = len(drawn) // 2
            measured = [(point.size_bytes, point.median_s) for point in points]
            fitted = [(point.size_bytes, point.median_s * (1 + model[point])) for point in points]
            drawn.append(PlotLine(name, measured, hue, "marks"))
            drawn.append(PlotLine(f"{name}: {series.chosen}", fitted, hue, "dashed"))
    panel = Panel(drawn, Axis("Size", short_size), Axis("Time", duration))
    notes = [f"{_name(one)}: {one.chosen}, {link_text(one.best)}" for one in report.series]
    return lines([panel], "Measured times and the α–β model", notes, file)
