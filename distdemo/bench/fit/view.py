"""Fitted models and predictions as people read them, and their plot."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.fit.records import (
    GOOD,
    Fit,
    FitReport,
    FittedSeries,
    Prediction,
    Reason,
)
from distdemo.bench.recording import title
from distdemo.view import colours
from distdemo.view.console import ASCII_SIGNS, Signs, signs
from distdemo.view.format import (
    duration,
    exact_size,
    listing,
    percent,
    plural,
    rate,
    short_size,
)
from distdemo.view.tables import Cell, Column, Grid, fitting

UNSURE = "yellow"
ASSUMPTIONS = (
    "Every message costs the measured α + s·β, within a machine and between two.",
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
_SPELLED = str.maketrans(
    {
        "α": "alpha ",
        "β": "beta",
        "½": "1/2",
        "·": "*",
        "µ": "u",
        "−": "-",
        "⌊": "",
        "⌋": "",
    }
)
PANEL = (6.4, 4.2)  # inches
ACROSS = 2  # panels in a row
MOST = 12  # panels


def table(report: FitReport, console: Console) -> RenderableType:
    """The fits of every series, then the predictions with what they assume."""
    parts: list[RenderableType] = []
    lone = [each for each in report.series if len(each.ranks) == 1]
    if lone:
        parts += [_overview(lone, console), *_assumed(lone, console), Text()]
    for series in report.series:
        if len(series.ranks) > 1:
            parts += [*_algorithms(series, console), Text()]
    for prediction in report.predictions:
        parts += [*_prediction(prediction, console), Text()]
    if report.predictions:
        parts.append(_said("It is assumed that:", console, colours.QUIET))
        parts += [_said(f"· {text}", console, colours.QUIET) for text in ASSUMPTIONS]
        parts.append(Text())
    for each in report.skipped:
        parts.append(_said(f"Left out: {title(each.spec)}: {each.why}", console, colours.QUIET))
    for file, differences in report.differences.items():
        found = ", ".join(f"{each.name} {each.new}, not {each.old}" for each in differences)
        parts.append(_said(f"! {file} differs from {report.files[0]}: {found}.", console, UNSURE))
    return Group(*parts, summary(report, console))


def summary(report: FitReport, console: Console) -> RenderableType:
    """A line a series: what it costs, and whether the model fits."""
    lines = []
    for series in report.series:
        best, good = series.best, series.best.is_good
        mark, style = (signs(console).right, colours.RIGHT) if good else ("!", UNSURE)
        text = (
            f"{mark} {title(series.spec, ranks=False)}, {_worlds(series)}: {best.algorithm} "
            f"{'fits' if good else 'does not fit'}, {link_text(best)}, median error "
            f"{percent(best.median_error)}."
        )
        lines.append(_said(text, console, style))
    return Group(*lines)


def link_text(fit: Fit) -> str:
    """``α = 30.0 µs, 1/β = 2.00 GB/s``."""
    return f"α = {duration(fit.alpha_s)}, 1/β = {_bandwidth(fit)}"


def _bandwidth(fit: Fit) -> str:
    return rate(1 / fit.beta_s_per_byte) if fit.beta_s_per_byte > 0 else "without limit"


def _worlds(series: FittedSeries) -> str:
    return f"{listing([str(n) for n in series.ranks])} ranks"


# ------------------------------------------------------------------------------------------ fits


def _overview(series: list[FittedSeries], console: Console) -> RenderableType:
    """A row a series that was measured on one number of ranks: by the algorithm assumed."""

    def draw(_: int) -> Grid:
        columns = [Column("Series", folds=True), Column("Algorithm")]
        columns += [Column(_letters(name, console), right=True) for name in ("α", "1/β", "Error")]
        grid = Grid(columns)
        for each in series:
            name = f"{title(each.spec, ranks=False)}, {_worlds(each)}"
            grid.rows.append([name, each.chosen, *_figures(each.best, console)])
        return grid

    return fitting(console, draw)


def _assumed(series: list[FittedSeries], console: Console) -> Iterator[Text]:
    if any(each.reason is Reason.ASSUMED for each in series):
        yield _said(
            "On one number of ranks timing cannot tell algorithms apart: the usual one is assumed. "
            "Give files of other numbers of ranks too, or say --algorithm.",
            console,
            UNSURE,
        )
    if not all(each.best.is_good for each in series):
        yield _said(f"! The median error is beyond {percent(GOOD)}.", console, UNSURE)


def _algorithms(series: FittedSeries, console: Console) -> Iterator[RenderableType]:
    """Every algorithm of a series that was measured on several numbers of ranks."""
    sign = signs(console)
    yield _said(f"{title(series.spec, ranks=False)}, {_worlds(series)}", console, "bold")

    def draw(_: int) -> Grid:
        names = ("α", "1/β", "Error", "Largest")
        columns = [Column(_letters(name, console), right=True) for name in names]
        grid = Grid([Column("Algorithm"), *columns])
        for fit in series.fits:
            chosen = fit.algorithm == series.chosen
            name = Text(f"{sign.arrow if chosen else ' '} {fit.algorithm}", "bold" * chosen)
            grid.rows.append([name, *_figures(fit, console), percent(fit.max_error)])
        return grid

    yield fitting(console, draw)
    best = series.best
    style = UNSURE if series.reason is Reason.ASSUMED else ""
    rounds = f"{best.rounds} rounds" if best.rounds != "1" else "1 round"
    yield _said(
        f"{sign.arrow} {best.algorithm}, {REASONS[series.reason]}: {rounds}; {best.source}.",
        console,
        style,
    )
    if not best.is_good:
        yield _said(
            f"! It does not fit: half of its times are more than {percent(GOOD)} off. Another "
            "algorithm, one that changes with the size, or ranks that share cores would do that.",
            console,
            UNSURE,
        )


def _figures(fit: Fit, console: Console) -> list[Cell]:
    error = Text(f"{percent(fit.median_error)}{'' if fit.is_good else ' !'}")
    error.style = "" if fit.is_good else UNSURE
    return [_letters(duration(fit.alpha_s), console), _bandwidth(fit), error]


# ----------------------------------------------------------------------------------- predictions


def _prediction(prediction: Prediction, console: Console) -> Iterator[RenderableType]:
    where = f"{title(prediction.spec, ranks=False)} on {plural(prediction.ranks, 'rank')}"
    yield _said(f"PREDICTION, on paper: {where}", console, "bold")
    measured = any(row.measured_s is not None for row in prediction.rows)
    draw = _beside if measured else _by_algorithm
    yield fitting(console, lambda _: draw(prediction, signs(console)))
    found, fastest = prediction.crossovers, ""
    if found:
        parts = [f"{each.below} up to {short_size(each.size_bytes)}" for each in found]
        fastest = f" Fastest: {', '.join(parts)}, {found[-1].above} beyond."
    elif len(prediction.rows[0].predicted_s) > 1:
        fastest = f" Fastest at any size: {prediction.rows[0].fastest}."
    yield _said(
        f"From {prediction.fit.algorithm}'s {link_text(prediction.fit)}.{fastest}",
        console,
    )
    if not prediction.fit.is_good:
        yield _said("! The model did not fit what was measured.", console, UNSURE)


def _by_algorithm(prediction: Prediction, sign: Signs) -> Grid:
    """A row an algorithm, a column a size; the fastest of a size is marked."""
    columns = [Column("Algorithm")]
    columns += [Column(exact_size(row.size_bytes), right=True) for row in prediction.rows]
    names = list(prediction.rows[0].predicted_s)
    best = ("*" if sign == ASCII_SIGNS else "★") + " " if len(names) > 1 else ""
    return Grid(
        columns,
        [
            [
                name,
                *(
                    f"{best * (name == row.fastest)}{duration(row.predicted_s[name])}"
                    for row in prediction.rows
                ),
            ]
            for name in names
        ],
    )


def _beside(prediction: Prediction, sign: Signs) -> Grid:
    """What was measured, beside what the fitted algorithm should take."""
    heads = (
        "Size",
        "Measured",
        f"Predicted ({prediction.fit.algorithm})",
        "Off by",
        "Fastest",
    )
    grid = Grid([Column(name, right=name != heads[-1]) for name in heads])
    for row in prediction.rows:
        time, known = row.predicted_s[prediction.fit.algorithm], row.measured_s
        off = f"{round(100 * (time / known - 1)):+d}%" if known else sign.none
        measured = duration(known) if known else sign.none
        grid.rows.append([exact_size(row.size_bytes), measured, duration(time), off, row.fastest])
    return grid


# ----------------------------------------------------------------------------------------- words


def _said(text: str, console: Console, style: str = "") -> Text:
    return Text(_letters(text, console), style=style)


def _letters(text: str, console: Console) -> str:
    """With Greek letters and fractions spelled out where the terminal has none."""
    return text.translate(_SPELLED) if signs(console) == ASCII_SIGNS else text


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
        panels = list(figure.subplots(down, across, squeeze=False).flat)
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        for axes, series in zip(panels, shown, strict=False):
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
            name = f"{title(series.spec, ranks=False)}, {_worlds(series)}"
            axes.set_title(f"{name}\n{link_text(series.best)}", fontsize=9)
            axes.legend(frameon=False, fontsize=9)
        return saved(figure, kind)
