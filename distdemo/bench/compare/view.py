"""``bench compare`` as people read it: a row a size, the machine's limits, the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.compare.records import (
    Change,
    ComparedSeries,
    CompareReport,
    Gate,
    LimitShift,
    RatioVerdict,
)
from distdemo.bench.recording import title
from distdemo.view import colours
from distdemo.view.console import ASCII_SIGNS, Signs, signs
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
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

HALF = 4  # columns of a bar at each side of 1
FULL = 1.5  # the ratio at which a bar reaches its end, either way
FEW = 6  # differences and sizes that are all named
UNSURE = "yellow"
STYLES = {
    Change.SLOWER: colours.WRONG,
    Change.FASTER: colours.RIGHT,
    Change.NONE: "",
    Change.UNKNOWN: colours.QUIET,
}


def table(report: CompareReport, console: Console) -> RenderableType:
    """Every series with its rows, the machine's limits, what else differs, and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for each in report.series:
        parts += [heading(title(each.spec)), _rows(report, each, console)]
        old, new = each.overall.old_launches, each.overall.new_launches
        text = f"All sizes: {_interval(each.overall)} {each.overall.change.value}"
        text += f"{_mark(report, each.overall, sign)} (from {old} and {new} launches)"
        parts += [Text(text, style=STYLES[each.overall.change]), Text()]
    if report.limits:
        parts += [heading("The machine itself"), _limits(report, console), Text()]
    parts += [Text(f"! {text}", style=UNSURE) for text in _warnings(report)]
    parts += [Text(text, style=colours.QUIET) for text in _notes(report)]
    return Group(*parts, summary(report, console))


def summary(report: CompareReport, console: Console) -> RenderableType:
    """Whether anything changed, in a sentence. A tick stands only by what is known."""
    sign = signs(console)
    changes = [each.change for each in report.every()]
    mark, style = "!", UNSURE
    if any(each.gate is Gate.FAILS for each in report.every()):
        mark, style = sign.wrong, colours.WRONG
    elif report.ok and not {Change.UNKNOWN, Change.SLOWER} & set(changes):
        mark, style = sign.right, colours.RIGHT
    return Text(f"{mark} {_verdict(report)}", style=style)


# ---------------------------------------------------------------------------------------- tables


def _rows(report: CompareReport, series: ComparedSeries, console: Console) -> RenderableType:
    sign = signs(console)

    def draw(_: int) -> Grid:
        columns = [Column(name, right=True) for name in ("Size", "Old", "New")]
        columns += [Column(name) for name in ("New/old", "Around 1", "Verdict")]
        grid = Grid(columns)
        for row in series.rows:
            found = row.outcome
            said = "can't tell" if found.change is Change.UNKNOWN else found.change.value
            style = UNSURE if report.is_suspect(found) else STYLES[found.change]
            verdict = Text(said + _mark(report, found, sign), style=style)
            times = (duration(row.old_median_s), duration(row.new_median_s))
            grid.rows.append(
                [exact_size(row.size_bytes), *times, _interval(found), bar(found, sign), verdict]
            )
        return grid

    return fitting(console, draw)


def bar(found: RatioVerdict, sign: Signs) -> str:
    """Where the interval lies around 1: ``  ├─●``; the middle column is 1.

    The scale is logarithmic and ends at ``FULL``: what lies beyond is drawn at the end.
    """
    middle, line, dot = ("|", "-", "o") if sign == ASCII_SIGNS else ("│", "━", "●")

    def place(value: float) -> int:
        share = math.log(value) / math.log(FULL)
        return HALF + round(HALF * min(1.0, max(-1.0, share)))

    cells = [" "] * (2 * HALF + 1)
    if found.interval is not None:
        low, high = map(place, found.interval)
        cells[low : high + 1] = line * (high - low + 1)
    cells[HALF] = middle
    cells[place(found.ratio)] = dot
    return "".join(cells)


def _limits(report: CompareReport, console: Console) -> RenderableType:
    """Both files' bandwidths, and latencies where something travels."""
    several = len({each.backend for each in report.limits}) > 1

    def draw(_: int) -> Grid:
        columns = [Column("Limit")]
        columns += [Column(name, right=True) for name in ("Old", "New", "Time, new/old")]
        grid = Grid(columns)
        for each in report.limits:
            name = f"{f'{each.backend}: ' * several}{_name(each)}"
            rates = rate(each.old_bandwidth_bytes_per_s), rate(each.new_bandwidth_bytes_per_s)
            grid.rows.append([name, *rates, digits(each.bandwidth_time_ratio)])
            if each.latency_ratio is not None:
                row: list[Cell] = [f"{name}, latency"]
                row += [duration(each.old_latency_s or 0.0), duration(each.new_latency_s or 0.0)]
                grid.rows.append([*row, digits(each.latency_ratio)])
        return grid

    return fitting(console, draw)


def _name(limit: LimitShift) -> str:
    return f"{limit.transport.value}, {'all ranks' if limit.at_once else 'alone'}"


def _interval(found: RatioVerdict) -> str:
    """``1.21 (1.12-1.30)``."""
    if found.interval is None:
        return digits(found.ratio)
    low, high = map(digits, found.interval)
    return f"{digits(found.ratio)} ({low}-{high})"


def _mark(report: CompareReport, found: RatioVerdict, sign: Signs) -> str:
    if found.gate is Gate.FAILS:
        return f" {sign.wrong}"
    return " !" if report.is_suspect(found) or found.explained_by else ""


# ----------------------------------------------------------------------------------------- words


def _verdict(report: CompareReport) -> str:
    """What came of it: what failed, what changed, what did not, and what cannot be told."""
    by_change = {
        change: [each for each in report.every() if each.change is change] for change in Change
    }
    unknown = by_change[Change.UNKNOWN]
    why = "the launches are too few, or scatter too widely"
    if any(each.explained_by for each in unknown):
        why = "the machine itself changed by more"
    failing = [each for each in report.every() if each.gate is Gate.FAILS]
    if failing:
        return (
            f"Slower by more than {percent(report.fail_over or 0)}: {_counted(report, failing)}, "
            f"up to {digits(max(each.ratio for each in failing))} times as long."
        )
    found = [
        f"{_counted(report, each)} {'unchanged' if change is Change.NONE else change.value}"
        for change, each in by_change.items()
        if each
    ]
    limit = percent(report.threshold)
    if len(found) > 1 or by_change[Change.SLOWER] or by_change[Change.FASTER]:
        return f"Beyond {limit}: {listing(found)}{f': {why}' * bool(unknown)}."
    if unknown:
        return f"It cannot be told whether anything changed: {why}."
    return f"No change beyond {limit} ({plural(len(report.rows), 'size')} compared)."


def _counted(report: CompareReport, found: list[RatioVerdict]) -> str:
    """``1 series and 2 sizes``; what is none is not named."""
    whole = sum(any(each.overall is one for one in found) for each in report.series)
    sizes = len(found) - whole
    return listing([f"{whole} series"] * bool(whole) + [plural(sizes, "size")] * bool(sizes))


def _warnings(report: CompareReport) -> Iterator[str]:
    """Why a change may be none of the code's."""
    for each in report.differences:
        if each.serious:
            yield f"{each.name}: {each.old} in the old file, {each.new} in the new one."
    for limit in report.limits:
        found = [each for each in report.every() if each.explained_by == limit]
        if found:
            word = "slower" if found[0].ratio > 1 else "faster"
            yield (
                f"{limit.backend}, {_name(limit)}: the machine itself got {word}, by more than "
                f"{_counted(report, found)} did."
            )
    for where in report.blocks:
        yield (
            f"{where}: blocks of one world stand for launches, so the intervals are too narrow: "
            "whole worlds differ by more."
        )


def _notes(report: CompareReport) -> Iterator[str]:
    light = [each for each in report.differences if not each.serious]
    for each in light[:FEW]:
        yield f"Differs: {each.name}: {each.old}, now {each.new}"
    if len(light) > FEW:
        yield f"{len(light) - FEW} more differences; --format json has them all."
    for one in report.unmatched:
        sizes = ", ".join(map(short_size, one.sizes_bytes[:FEW]))
        sizes += f" and {len(one.sizes_bytes) - FEW} more" * (len(one.sizes_bytes) > FEW)
        what = "all of it" if one.whole else sizes
        yield f"Only in the {one.file} file: {title(one.spec)}: {what}."
    wide = [
        each
        for each in report.every()
        if each.interval is None
        or each.interval[1] / each.interval[0] > (1 + report.threshold) ** 2
    ]
    if wide:
        yield (
            f"A change of {percent(report.threshold)} could go unseen in "
            f"{_counted(report, wide)}: measure both with more --launches."
        )
    if report.confidence is not None:
        yield (
            f"All intervals of sizes hold together with {report.confidence:.1%} confidence; "
            "whole runs differ by a few percent more."
        )
