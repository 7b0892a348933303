"""Fitted models and predictions, as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.fitting import ASSUMPTIONS, Fit, FitReport, FittedSeries, Prediction
from distdemo.bench.view_compare_words import series_words
from distdemo.bench.view_fit_words import error, fastest, link_words, misfit_words, title, verdict
from distdemo.bench.view_marks import marks, spelled
from distdemo.bench.view_numbers import digits, size_text
from distdemo.view import colours
from distdemo.view.console import ASCII_SIGNS, Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Cell, Column, Grid, fitting, widest
from distdemo.view.numbers import duration, plural

UNSURE = "yellow"


def fit_table(report: FitReport, console: Console) -> Group:
    """The fits of every series, then the predictions with what they assume."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for series in report.series:
        parts += [_greek(heading(title(series)), sign), _fits(series, console)]
        parts += [*_below(series, sign), Text()]
    if report.predictions:
        parts += [*_predictions(report, console), Text()]
    parts += [_said(text, sign, colours.QUIET) for text in report.notes]
    return Group(*parts, verdict_lines(report, sign))


def verdict_lines(report: FitReport, sign: Signs) -> Group:
    """A line a series: what it costs, and whether the model fits."""
    return Group(*(_verdict(series, sign) for series in report.series))


def _verdict(series: FittedSeries, sign: Signs) -> Text:
    well = not series.best.misfit
    mark = sign.right if well else "!"
    return _said(f"{mark} {verdict(series)}.", sign, colours.RIGHT if well else UNSURE)


# -------------------------------------------------------------------------------------------- fits


def _fits(series: FittedSeries, console: Console) -> RenderableType:
    sign = signs(console)
    heads = ("Algorithm", "α, µs", "1/β, GB/s", "Error, max")

    def draw(_: int) -> Grid:
        columns = [Column(_letters(name, sign), right=name != heads[0]) for name in heads]
        return Grid(columns, [_fit(fit, series.chosen, sign) for fit in series.fits])

    return fitting(console, draw)


def _fit(fit: Fit, chosen: str, sign: Signs) -> list[Cell]:
    mark = marks(sign).named if fit.algorithm == chosen else " "
    style = UNSURE if fit.misfit else "bold" if fit.algorithm == chosen else ""
    errors = f"{error(fit.median_error)}, {error(fit.max_error)}"
    return [
        Text(f"{mark} {fit.algorithm}", style=style),
        spelled(_with_interval(fit.link.alpha, fit.alpha_interval, 1e6), sign),
        spelled(_bandwidth(fit, sign), sign),
        Text(f"{errors} !" if fit.misfit else errors, style=style),
    ]


def _with_interval(value: float, interval: tuple[float, float] | None, scale: float) -> str:
    """``30.0 (29.1–30.8)``."""
    if interval is None:
        return digits(value * scale)
    low, high = (digits(edge * scale) for edge in interval)
    return f"{digits(value * scale)} ({low}–{high})"


def _bandwidth(fit: Fit, sign: Signs) -> str:
    """1/β in GB/s, and from the largest β to the smallest; where β may be 0, a sign for none."""
    beta, edges = fit.link.beta, fit.beta_interval
    if beta <= 0:
        return sign.none
    if edges is None:
        return digits(1e-9 / beta)
    low, high = (digits(1e-9 / edge) if edge > 0 else sign.none for edge in reversed(edges))
    return f"{digits(1e-9 / beta)} ({low}–{high})"


def _below(series: FittedSeries, sign: Signs) -> Iterator[Text]:
    best = series.best
    named = marks(sign).named
    yield _said(f"{named} {best.algorithm}: T = {best.formula}; {best.source}.", sign)
    if len(series.fits) > 1:
        yield _said(series.why, sign, "" if series.told_apart else UNSURE)
    text = misfit_words(series)
    if text:
        yield _said(f"! {text}", sign, UNSURE)


# ------------------------------------------------------------------------------------- predictions


def _predictions(report: FitReport, console: Console) -> Iterator[RenderableType]:
    sign = signs(console)
    for each in report.predictions:
        where = f"{series_words(each.key, ranks=False)} on {plural(each.n, 'rank')}"
        yield _said(f"PREDICTION, on paper: {where}", sign, "bold")
        yield _times(each, console)
        yield _said(f"From {each.source}'s {link_words(each.link)}. {fastest(each)}".strip(), sign)
        if each.misfit:
            yield _said("! The model did not fit what was measured: trust this less.", sign, UNSURE)
        yield Text()
    yield _said("It is assumed that:", sign, colours.QUIET)
    for text in ASSUMPTIONS:
        yield _said(f"{sign.dot} {text}", sign, colours.QUIET)


def _times(prediction: Prediction, console: Console) -> RenderableType:
    sign = signs(console)
    if any(row.measured is not None for row in prediction.rows):
        return fitting(console, lambda _: _beside(prediction, sign))
    grid = _by_algorithm(prediction, sign)
    if widest(console, grid.table()) <= console.width:
        return grid.table()
    grid.columns = [replace(each, name=each.name.replace("\n", "")) for each in grid.columns]
    return grid.lines()


def _by_algorithm(prediction: Prediction, sign: Signs) -> Grid:
    """A column an algorithm; the fastest of a row is marked."""
    names = list(prediction.rows[0].seconds)
    best = marks(sign).best
    columns = [Column("Size", right=True)]
    columns += [Column(name.replace("-", "-\n"), right=True) for name in names]
    rows: list[list[Cell]] = []
    for row in prediction.rows:
        fast = row.fastest if len(names) > 1 else ""
        cells = [
            (f"{best} " if name == fast else "") + duration(row.seconds[name]) for name in names
        ]
        rows.append([size_text(row.size), *(spelled(cell, sign) for cell in cells)])
    return Grid(columns, rows)


def _beside(prediction: Prediction, sign: Signs) -> Grid:
    """What was measured, beside what the fitted algorithm should take."""
    heads = ("Size", "Measured", f"Predicted ({prediction.source})", "Off by", "Fastest")
    columns = [Column(name, right=name != heads[-1]) for name in heads]
    rows: list[list[Cell]] = []
    for row in prediction.rows:
        time = row.seconds[prediction.source]
        known = row.measured is not None
        off = f"{100 * (time / row.measured - 1):+.0f} %" if row.measured else sign.none
        measured = duration(row.measured or 0.0) if known else sign.none
        rows.append([size_text(row.size), measured, duration(time), off, row.fastest])
    return Grid(columns, rows)


# ------------------------------------------------------------------------------------------- words


def _said(text: str, sign: Signs, style: str = "") -> Text:
    return Text(_letters(text, sign), style=style)


def _greek(text: Text, sign: Signs) -> Text:
    return Text(_letters(text.plain, sign), style=text.style)


def _letters(text: str, sign: Signs) -> str:
    """With Greek letters and fractions spelled out where the terminal has none."""
    if sign != ASCII_SIGNS:
        return text
    for letter, name in (("α", "alpha"), ("β", "beta"), ("½", "1/2"), ("·", "*"), ("µ", "u")):
        text = text.replace(letter, name)
    return spelled(text, sign)
