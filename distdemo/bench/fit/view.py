"""Fitted models and predictions as people read them, and their plot."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.fit.records import GOOD, Fit, FitReport, FittedSeries, Prediction, Reason
from distdemo.bench.recording import title
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import duration, exact_size, listing, percent, plural, rate, short_size
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

UNSURE = "yellow"
ASSUMPTIONS = (
    "Every message costs the measured α, and β a byte, within a machine and between two.",
    "Messages at the same time share no link.",
    "All ranks start at once, none is late, and no two rounds overlap.",
    "More ranks than cores, and what reducing costs, are in α and β and stay as measured.",
    "A backend would have to use the algorithm named: whether it does is not known.",
)
"""On which every prediction stands."""
REASONS = {
    Reason.ASKED: "as asked for",
    Reason.ONLY: "the only one",
    Reason.BEST: "which fits best",
    Reason.ASSUMED: "the usual one, as no other fits clearly better",
}
PANEL = (6.4, 4.2)  # inches
ACROSS = 2  # panels in a row
MOST = 12  # panels


def table(report: FitReport, console: Console) -> RenderableType:
    """The fits of every series, then the predictions with what they assume."""
    parts: list[RenderableType] = []
    lone = [each for each in report.series if len(each.ranks) == 1]
    if lone:
        parts += [*_overview(lone, console), Text()]
    for series in report.series:
        if len(series.ranks) > 1:
            parts += [*_algorithms(series, console), Text()]
    for prediction in report.predictions:
        parts += [*_prediction(prediction, console), Text()]
    notes = [f"Left out: {title(each.spec)}: {each.why}" for each in report.skipped]
    if report.predictions:
        notes = ["It is assumed that:", *(f"- {text}" for text in ASSUMPTIONS), "", *notes]
    parts += [Text(note, style=colours.QUIET) for note in notes]
    for file, differences in report.differences.items():
        found = ", ".join(f"{each.name} {each.new}, not {each.old}" for each in differences)
        parts.append(Text(f"! {file} differs from {report.files[0]}: {found}.", style=UNSURE))
    return Group(*parts, summary(report, console))


def summary(report: FitReport, console: Console) -> RenderableType:
    """A line a series: what it costs, and whether the model fits."""
    lines = []
    for series in report.series:
        best, good = series.best, series.best.is_good
        mark, style = (signs(console).right, colours.RIGHT) if good else ("!", UNSURE)
        text = (
            f"{mark} {_name(series)}: {best.algorithm} {'fits' if good else 'does not fit'}, "
            f"{link_text(best)}, median error {percent(best.median_error)}."
        )
        lines.append(Text(text, style=style))
    return Group(*lines)


def link_text(fit: Fit) -> str:
    """``α = 30.0 µs, 1/β = 2.00 GB/s``."""
    return f"α = {duration(fit.alpha_s)}, 1/β = {_bandwidth(fit)}"


def _bandwidth(fit: Fit) -> str:
    return rate(1 / fit.beta_s_per_byte) if fit.beta_s_per_byte > 0 else "without limit"


def _name(series: FittedSeries) -> str:
    ranks = listing([str(n) for n in series.ranks])
    return f"{title(series.spec, ranks=False)}, {ranks} ranks"


# ------------------------------------------------------------------------------------------ fits


def _overview(series: list[FittedSeries], console: Console) -> Iterator[RenderableType]:
    """A row a series that was measured on one number of ranks: by the algorithm assumed."""
    columns = [Column("Series", folds=True), Column("Algorithm")]
    columns += [Column(name, right=True) for name in ("α", "1/β", "Error")]
    rows = [[_name(each), each.chosen, *_figures(each.best)] for each in series]
    yield fitting(console, lambda _: Grid(columns, rows))
    if any(each.reason is Reason.ASSUMED for each in series):
        text = (
            "On one number of ranks timing cannot tell algorithms apart: the usual one is assumed. "
            "Give files of other numbers of ranks too, or say --algorithm."
        )
        yield Text(text, style=UNSURE)
    if not all(each.best.is_good for each in series):
        yield Text(f"! The median error is beyond {percent(GOOD)}.", style=UNSURE)


def _algorithms(series: FittedSeries, console: Console) -> Iterator[RenderableType]:
    """Every algorithm of a series that was measured on several numbers of ranks."""
    sign, best = signs(console), series.best
    figures = [Column(name, right=True) for name in ("α", "1/β", "Error", "Largest")]
    grid = Grid([Column("Algorithm"), *figures])
    for fit in series.fits:
        chosen = fit is best
        name = Text(f"{sign.arrow if chosen else ' '} {fit.algorithm}", "bold" * chosen)
        grid.rows.append([name, *_figures(fit), percent(fit.max_error)])
    yield heading(_name(series))
    yield fitting(console, lambda _: grid)
    style = UNSURE if series.reason is Reason.ASSUMED else ""
    text = f"{sign.arrow} {best.algorithm}, {REASONS[series.reason]}: {best.source}."
    yield Text(text, style=style)
    if not best.is_good:
        text = (
            f"! It does not fit: half of its times are more than {percent(GOOD)} off. Another "
            "algorithm, one that changes with the size, or ranks that share cores would do that."
        )
        yield Text(text, style=UNSURE)


def _figures(fit: Fit) -> list[Cell]:
    error = f"{percent(fit.median_error)}{'' if fit.is_good else ' !'}"
    return [
        duration(fit.alpha_s),
        _bandwidth(fit),
        Text(error, style="" if fit.is_good else UNSURE),
    ]


# ----------------------------------------------------------------------------------- predictions


def _prediction(prediction: Prediction, console: Console) -> Iterator[RenderableType]:
    where = f"{title(prediction.spec, ranks=False)} on {plural(prediction.ranks, 'rank')}"
    yield heading(f"Prediction, not measured: {where}")
    measured = any(row.measured_s is not None for row in prediction.rows)
    grid = _beside(prediction, signs(console)) if measured else _by_algorithm(prediction)
    yield fitting(console, lambda _: grid)
    found, fastest = prediction.crossovers, ""
    if found:
        parts = [f"{each.below} up to {short_size(each.size_bytes)}" for each in found]
        fastest = f" Fastest: {', '.join(parts)}, {found[-1].above} beyond."
    elif len(prediction.rows[0].predicted_s) > 1:
        fastest = f" Fastest at any size: {prediction.rows[0].fastest}."
    yield Text(f"From {prediction.fit.algorithm}'s {link_text(prediction.fit)}.{fastest}")
    if not prediction.fit.is_good:
        yield Text("! The model did not fit what was measured.", style=UNSURE)


def _by_algorithm(prediction: Prediction) -> Grid:
    """A row an algorithm, a column a size; the fastest of a size is marked."""
    sizes = [Column(exact_size(row.size_bytes), right=True) for row in prediction.rows]
    grid = Grid([Column("Algorithm"), *sizes])
    names = list(prediction.rows[0].predicted_s)
    for name in names:
        times = (
            f"{'★ ' * (name == row.fastest and len(names) > 1)}{duration(row.predicted_s[name])}"
            for row in prediction.rows
        )
        grid.rows.append([name, *times])
    return grid


def _beside(prediction: Prediction, sign: Signs) -> Grid:
    """What was measured, beside what the fitted algorithm should take."""
    predicted = f"Predicted ({prediction.fit.algorithm})"
    columns = [Column(name, right=True) for name in ("Size", "Measured", predicted, "Off by")]
    grid = Grid([*columns, Column("Fastest")])
    for row in prediction.rows:
        time, known = row.predicted_s[prediction.fit.algorithm], row.measured_s
        off = f"{round(100 * (time / known - 1)):+d}%" if known else sign.none
        measured = duration(known) if known else sign.none
        grid.rows.append([exact_size(row.size_bytes), measured, duration(time), off, row.fastest])
    return grid


# ------------------------------------------------------------------------------------------ plot


def plot(report: FitReport, kind: str) -> bytes:
    """Measured times and fitted curves: a panel a series, logarithmic axes.

    Args:
        report: with a series at least; beyond ``MOST`` the others are left out.
        kind: ``png`` or ``svg``.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from distdemo.view.plot import COLOURS, MARKS, SETTINGS, saved

    shown = report.series[:MOST]
    across = min(ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), layout="constrained")
        for place, series in enumerate(shown, start=1):
            axes = figure.add_subplot(down, across, place)
            model = dict(zip(series.points, series.best.residuals, strict=True))
            for at, n in enumerate(series.ranks):
                points = [point for point in series.points if point.ranks == n]
                sizes = [point.size_bytes for point in points]
                times = [point.median_s for point in points]
                fitted = [point.median_s * (1 + model[point]) for point in points]
                colour, mark = COLOURS[at % len(COLOURS)], MARKS[at % len(MARKS)]
                label = f"{n} ranks, measured"
                axes.plot(sizes, times, linestyle="", color=colour, marker=mark, label=label)
                axes.plot(sizes, fitted, color=colour, label=f"{n} ranks, {series.chosen}")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("Size")
            axes.set_ylabel("Time")
            axes.set_title(f"{_name(series)}\n{link_text(series.best)}", fontsize=9)
            axes.legend(frameon=False, fontsize=9)
        return saved(figure, kind)
