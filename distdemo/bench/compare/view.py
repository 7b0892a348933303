"""Report of ``bench compare``: one row per size, the machine's limits, the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from distdemo.bench.compare.compare import Change, ComparedSeries, CompareReport, RatioVerdict
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    digits,
    duration,
    exact_size,
    listing,
    plural,
    rate,
    short_size,
)
from distdemo.view.tables import Column, Grid

MOST_LISTED = 6  # differences and sizes
STYLES = {
    Change.SLOWER: colours.WRONG,
    Change.FASTER: colours.RIGHT,
    Change.NONE: "",
    Change.UNKNOWN: colours.QUIET,
}


def compare_view(report: CompareReport, _: Signs) -> Iterator[Block]:
    """Yield every series with its rows, the machine's limits, other differences, the verdict."""
    for series in report.series:
        overall = series.overall
        text = f"All sizes: {_interval(overall)} {overall.change} "
        text += f"(from {overall.old_launches} and {overall.new_launches} launches)"
        yield Heading(series.spec.title())
        yield _rows(series)
        yield Paragraph(text, STYLES[overall.change])
        yield Paragraph()
    if report.limits:
        yield Heading("The machine itself")
        yield _limits(report)
        yield Paragraph()
    for text in _warnings(report):
        yield Paragraph(f"! {text}", colours.UNSURE)
    for text in _notes(report):
        yield Paragraph(text, colours.QUIET)
    changes = {verdict.change for verdict in report.outcomes}
    certain = not {Change.UNKNOWN, Change.SLOWER} & changes
    yield Summary(verdict_text(report), (certain or None) if report.ok else False, "!")


# ---------------------------------------------------------------------------------------- tables


def _rows(series: ComparedSeries) -> Grid:
    columns = [Column(name, right=True) for name in ("Size", "Old", "New")]
    grid = Grid([*columns, Column("New/old"), Column("Verdict")])
    for row in series.rows:
        change = row.outcome.change
        times = (duration(row.old_median_s), duration(row.new_median_s))
        verdict = Text(change.value, style=STYLES[change])
        grid.rows.append([exact_size(row.size_bytes), *times, _interval(row.outcome), verdict])
    return grid


def _limits(report: CompareReport) -> Grid:
    """Return the bandwidths of both files, and the latencies of transports that have one."""
    several = len({shift.backend for shift in report.limits}) > 1
    columns = [Column(name, right=True) for name in ("Old", "New", "Time, new/old")]
    grid = Grid([Column("Limit"), *columns])
    for shift in report.limits:
        old, new = shift.old, shift.new
        name = f"{f'{shift.backend}: ' * several}{old.transport.value}"
        rates = (rate(old.bandwidth_bytes_per_s), rate(new.bandwidth_bytes_per_s))
        grid.rows.append([name, *rates, digits(shift.time_ratio)])
        if shift.latency_ratio is not None:
            times = (duration(old.latency_s or 0.0), duration(new.latency_s or 0.0))
            grid.rows.append([f"{name}, latency", *times, digits(shift.latency_ratio)])
    return grid


def _interval(verdict: RatioVerdict) -> str:
    """Return ``1.21 (1.12-1.30)``."""
    if verdict.interval is None:
        return digits(verdict.ratio)
    low, high = map(digits, verdict.interval)
    return f"{digits(verdict.ratio)} ({low}-{high})"


# ----------------------------------------------------------------------------------------- words


def verdict_text(report: CompareReport) -> str:
    """Return the verdict: the outcome, and the changed, unchanged and undecided sizes."""
    limit = f"{100 * report.threshold:g}%"
    why = "too few launches, or too much scatter between them. Try more --launches."
    if report.disturbed:
        why = "the machine was disturbed. Measure again while nothing else runs."
    counts = [text for change in Change if (text := _count_text(report, change))]
    changes = {verdict.change for verdict in report.outcomes}
    text = f"{listing(counts)}{f': {why}' if Change.UNKNOWN in changes else '.'}"
    if not report.ok:
        option = "--fail-on undecided"
        if report.outcome is Change.SLOWER:
            option = f"--fail-over {limit}"
        return f"Failed by {option}: {text}"
    if changes == {Change.NONE}:
        return f"No change beyond {limit} ({plural(len(report.rows), 'size')} compared)."
    text = f"Beyond {limit}: {text}"
    if changes == {Change.UNKNOWN}:
        text = f"Can't tell whether anything changed: {why}"
    if report.fail_over is not None and report.outcome is Change.UNKNOWN:
        text += " This is no failure without --fail-on undecided."
    return text


def _count_text(report: CompareReport, change: Change) -> str:
    """Return ``1 series and 2 sizes slower``, without counts of 0."""
    series = sum(one.overall.change is change for one in report.series)
    sizes = sum(row.outcome.change is change for row in report.rows)
    if not series and not sizes:
        return ""
    counts = [f"{series} series"] * bool(series) + [plural(sizes, "size")] * bool(sizes)
    return f"{listing(counts)} {'unchanged' if change is Change.NONE else change}"


def _warnings(report: CompareReport) -> Iterator[str]:
    """Yield the reasons why a change may not come from the code."""
    yield from report.disturbed
    for difference in report.differences:
        if difference.serious:
            old, new = difference.old, difference.new
            yield f"{difference.name}: {old} in the old file, {new} in the new one."
    for shift in report.limits:
        ratios = (shift.time_ratio, shift.latency_ratio or 1.0)
        if max(ratios) > 1 + report.threshold or min(ratios) < 1 / (1 + report.threshold):
            yield (
                f"{shift.backend}, {shift.old.transport.value}: the machine itself changed by "
                f"more than {100 * report.threshold:g}%."
            )


def _notes(report: CompareReport) -> Iterator[str]:
    yield from report.notes
    minor = [difference for difference in report.differences if not difference.serious]
    for difference in minor[:MOST_LISTED]:
        yield f"Differs: {difference.name}: {difference.old}, now {difference.new}"
    if len(minor) > MOST_LISTED:
        yield f"{len(minor) - MOST_LISTED} more differences; --format json has them all."
    for unmatched in report.unmatched:
        sizes = ", ".join(map(short_size, unmatched.sizes_bytes[:MOST_LISTED]))
        more = len(unmatched.sizes_bytes) - MOST_LISTED
        sizes += f" and {more} more" * (more > 0)
        yield f"Only in the {unmatched.file} file: {unmatched.spec.title()}: {sizes}."
