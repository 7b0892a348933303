"""Views of ``bench compare`` and ``bench fit``."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.bench.records_files import (
    Change,
    ComparedRow,
    CompareReport,
    Fit,
    FitReport,
    FittedSeries,
    Prediction,
)
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import digits, duration, exact_size, listing, percent, plural, rate
from distdemo.view.tables import Column, grid_of

# ------------------------------------------------------------------------------------- compare


def compare_view(report: CompareReport, _: Signs) -> Iterator[Block]:
    """Yield every series with its rows, the disturbances and notes, the verdict."""
    for series in report.series:
        yield Heading(series.spec.title)
        yield grid_of(
            series.rows,
            (Column("Size", right=True), _size_text),
            (Column("Old", right=True), lambda row: _time_text(row.old_median_s)),
            (Column("New", right=True), lambda row: _time_text(row.new_median_s)),
            (Column("New/old"), _ratio_text),
            (Column("Verdict"), lambda row: row.change.value),
        )
        yield Paragraph()
    for text in report.disturbed:
        yield Paragraph(f"! {text}", colours.UNSURE)
    for text in report.notes:
        yield Paragraph(text, colours.QUIET)
    certain = report.outcome not in (Change.UNKNOWN, Change.SLOWER) and not report.unmatched
    yield Summary(verdict_text(report), (certain or None) if report.ok else False, "!")


def _size_text(row: ComparedRow) -> str:
    return "all" if row.size_bytes is None else exact_size(row.size_bytes)


def _time_text(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _ratio_text(row: ComparedRow) -> str:
    """Return ``1.21 (1.12-1.30)``."""
    if row.interval is None:
        return digits(row.ratio)
    low, high = map(digits, row.interval)
    return f"{digits(row.ratio)} ({low}-{high})"


def verdict_text(report: CompareReport) -> str:
    """Return the outcome, and the number of sizes with each change."""
    limit = f"{100 * report.threshold:g}%"
    counts = []
    for change in Change:
        count = sum(row.change is change for row in report.rows if row.size_bytes is not None)
        if count:
            word = "unchanged" if change is Change.NONE else change
            counts.append(f"{plural(count, 'size')} {word}")
    texts = {
        Change.SLOWER: f"Slower by more than {limit}",
        Change.FASTER: f"Faster by more than {limit}",
        Change.NONE: f"No change beyond {limit}",
        Change.UNKNOWN: "Can't tell whether anything changed",
    }
    text = f"{texts[report.outcome]}: {listing(counts)}."
    if report.outcome is Change.UNKNOWN:
        text += " Measure again with a larger --budget, while nothing else runs."
    return text if report.ok else f"Failed by --fail-over {limit}: {text}"


# ----------------------------------------------------------------------------------------- fit


def fit_view(report: FitReport, sign: Signs) -> Iterator[Block]:
    """Yield the fits of every series, the predictions, and the verdicts."""
    for series in report.series:
        yield from _fits(series, sign)
        yield Paragraph()
    if report.predictions:
        yield Heading("Predicted, not measured, if no messages share a link")
        yield grid_of(
            report.predictions,
            (Column("Series"), lambda one: f"{one.spec.operation.command} {one.fitted}"),
            (Column("Ranks", right=True), lambda one: f"{one.ranks:,}"),
            (Column("Size", right=True), lambda one: exact_size(one.size_bytes)),
            (Column("Time", right=True), lambda one: duration(one.predicted_s[one.fitted])),
            (Column("Fastest algorithm", right=True), _fastest),
        )
        yield Paragraph()
    for note in report.notes:
        yield Paragraph(note, colours.QUIET)
    for series in report.series:
        best = series.fits[0]
        link = f"α = {duration(best.alpha_s)}, 1/β = {_bandwidth(best)}"
        error = f"median error {percent(best.median_error)}"
        fits = "fits" if best.is_good else "does not fit, so nothing is predicted"
        text = f"{_name(series)}: {best.algorithm} {fits}: {link}, {error}."
        yield Summary(text, best.is_good or None, "!")


def _fastest(one: Prediction) -> str:
    return f"{duration(one.predicted_s[one.fastest])} {one.fastest}"


def _bandwidth(fit: Fit) -> str:
    return rate(1 / fit.beta_s_per_byte) if fit.beta_s_per_byte > 0 else "unlimited"


def _name(series: FittedSeries) -> str:
    return f"{series.spec.title}, {listing([str(n) for n in series.ranks])} ranks"


def _fits(series: FittedSeries, sign: Signs) -> Iterator[Block]:
    """Yield every algorithm of a series; with one number of ranks only the usual one."""
    best = series.fits[0]
    yield Heading(_name(series))
    yield grid_of(
        series.fits if len(series.ranks) > 1 else [best],
        (Column("Algorithm"), lambda fit: f"{sign.arrow if fit is best else ' '} {fit.algorithm}"),
        (Column("α", right=True), lambda fit: duration(fit.alpha_s)),
        (Column("1/β", right=True), _bandwidth),
        (Column("Error", right=True), lambda fit: percent(fit.median_error)),
        (Column("Largest", right=True), lambda fit: percent(fit.max_error)),
    )
    if len(series.fits) > 1 and len(series.ranks) == 1:
        text = "The usual algorithm is assumed. Files with other numbers of ranks tell them apart."
        yield Paragraph(text, colours.UNSURE)
