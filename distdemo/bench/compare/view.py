"""Report of ``bench compare``: one row per size, the machine's limits, the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from distdemo.bench.compare.records import Change, ComparedSeries, CompareReport, RatioVerdict
from distdemo.measure.recording import title
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    digits,
    duration,
    exact_size,
    listing,
    percent,
    plural,
    rate,
    short_size,
)
from distdemo.view.tables import Cell, Column, Grid

FEW = 6  # most differences and sizes listed by name
STYLES = {
    Change.SLOWER: colours.WRONG,
    Change.FASTER: colours.RIGHT,
    Change.NONE: "",
    Change.UNKNOWN: colours.QUIET,
}


def compare_view(report: CompareReport, _: Signs) -> Iterator[Block]:
    """Yield every series with its rows, the machine's limits, other differences, the verdict."""
    for each in report.series:
        overall = each.overall
        text = f"All sizes: {_interval(overall)} {overall.change.value} "
        text += f"(from {overall.old_launches} and {overall.new_launches} launches)"
        yield Heading(title(each.spec))
        yield _rows(each)
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
    changes = {each.change for each in report.outcomes}
    slower = not report.ok and Change.SLOWER in changes
    sure = report.ok and not {Change.UNKNOWN, Change.SLOWER} & changes
    yield Summary(_verdict(report), sure, "" if slower or sure else "!")


# ---------------------------------------------------------------------------------------- tables


def _rows(series: ComparedSeries) -> Grid:
    columns = [Column(name, right=True) for name in ("Size", "Old", "New")]
    grid = Grid([*columns, Column("New/old"), Column("Verdict")])
    for row in series.rows:
        change = row.outcome.change
        name = "can't tell" if change is Change.UNKNOWN else change.value
        times = (duration(row.old_median_s), duration(row.new_median_s))
        verdict = Text(name, style=STYLES[change])
        grid.rows.append([exact_size(row.size_bytes), *times, _interval(row.outcome), verdict])
    return grid


def _limits(report: CompareReport) -> Grid:
    """Return the bandwidths of both files, and the latencies of transports that have one."""
    several = len({each.backend for each in report.limits}) > 1
    columns = [Column(name, right=True) for name in ("Old", "New", "Time, new/old")]
    grid = Grid([Column("Limit"), *columns])
    for each in report.limits:
        old, new = each.old, each.new
        name = f"{f'{each.backend}: ' * several}{old.transport.value}"
        rates = rate(old.bandwidth_bytes_per_s), rate(new.bandwidth_bytes_per_s)
        grid.rows.append([name, *rates, digits(each.time_ratio)])
        if each.latency_ratio is not None:
            row: list[Cell] = [f"{name}, latency"]
            row += [duration(old.latency_s or 0.0), duration(new.latency_s or 0.0)]
            grid.rows.append([*row, digits(each.latency_ratio)])
    return grid


def _interval(found: RatioVerdict) -> str:
    """Return ``1.21 (1.12-1.30)``."""
    if found.interval is None:
        return digits(found.ratio)
    low, high = map(digits, found.interval)
    return f"{digits(found.ratio)} ({low}-{high})"


# ----------------------------------------------------------------------------------------- words


def _verdict(report: CompareReport) -> str:
    """Return the verdict: changed, unchanged and undecided series and sizes."""
    found = {
        change: [each for each in report.outcomes if each.change is change] for change in Change
    }
    limit = percent(report.threshold)
    why = "too few launches, or too much scatter between them. Try more --launches"
    if len(found[Change.UNKNOWN]) == len(report.outcomes):
        return f"Can't tell whether anything changed: {why}."
    if len(found[Change.NONE]) == len(report.outcomes):
        return f"No change beyond {limit} ({plural(len(report.rows), 'size')} compared)."
    counts = [
        f"{_counted(report, each)} {'unchanged' if change is Change.NONE else change.value}"
        for change, each in found.items()
        if each
    ]
    return f"Beyond {limit}: {listing(counts)}{f': {why}' * bool(found[Change.UNKNOWN])}."


def _counted(report: CompareReport, found: list[RatioVerdict]) -> str:
    """Return ``1 series and 2 sizes``, without counts of 0."""
    whole = sum(any(each.overall is one for one in found) for each in report.series)
    sizes = len(found) - whole
    return listing([f"{whole} series"] * bool(whole) + [plural(sizes, "size")] * bool(sizes))


def _warnings(report: CompareReport) -> Iterator[str]:
    """Yield the reasons why a change may not come from the code."""
    for each in report.differences:
        if each.serious:
            yield f"{each.name}: {each.old} in the old file, {each.new} in the new one."
    for limit in report.limits:
        most = max(limit.time_ratio, limit.latency_ratio or 1.0)
        least = min(limit.time_ratio, limit.latency_ratio or 1.0)
        if most > 1 + report.threshold or least < 1 / (1 + report.threshold):
            yield (
                f"{limit.backend}, {limit.old.transport.value}: the machine itself changed by "
                f"more than {percent(report.threshold)}."
            )


def _notes(report: CompareReport) -> Iterator[str]:
    yield from report.notes
    light = [each for each in report.differences if not each.serious]
    for each in light[:FEW]:
        yield f"Differs: {each.name}: {each.old}, now {each.new}"
    if len(light) > FEW:
        yield f"{len(light) - FEW} more differences; --format json has them all."
    for one in report.unmatched:
        sizes = ", ".join(map(short_size, one.sizes_bytes[:FEW]))
        sizes += f" and {len(one.sizes_bytes) - FEW} more" * (len(one.sizes_bytes) > FEW)
        yield f"Only in the {one.file} file: {title(one.spec)}: {sizes}."
