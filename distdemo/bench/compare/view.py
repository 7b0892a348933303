"""``bench compare`` as people read it: a row a size, the machine's limits, the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.compare.records import (
    Change,
    Compared,
    ComparedSeries,
    Comparison,
    Gate,
    LimitShift,
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
SURE = 0.9  # of all intervals together: below it, that of each is told, too
UNSURE = "yellow"
STYLES = {
    Change.SLOWER: colours.WRONG,
    Change.FASTER: colours.RIGHT,
    Change.NONE: "",
    Change.UNKNOWN: colours.QUIET,
}


def table(comparison: Comparison, console: Console) -> RenderableType:
    """Every series with its rows, the machine's limits, what else differs, and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for each in comparison.series:
        parts += [heading(title(each.spec)), _rows(comparison, each, console)]
        old, new = each.overall.old_launches, each.overall.new_launches
        text = f"All sizes: {_interval(each.overall)} {each.overall.change.value}"
        text += f"{_mark(comparison, each.overall, sign)} (from {old} and {new} launches)"
        parts += [Text(text, style=STYLES[each.overall.change]), Text()]
    if comparison.limits:
        parts += [heading("The machine itself"), _limits(comparison, console), Text()]
    parts += [Text(f"! {text}", style=UNSURE) for text in _warnings(comparison)]
    parts += [Text(text, style=colours.QUIET) for text in _notes(comparison, sign)]
    return Group(*parts, summary(comparison, console))


def summary(comparison: Comparison, console: Console) -> RenderableType:
    """Whether anything changed, in a sentence. A tick stands only by what is known."""
    sign = signs(console)
    changes = [each.change for each in comparison.every()]
    mark, style = "!", UNSURE
    if any(each.gate is Gate.FAILS for each in comparison.every()):
        mark, style = sign.wrong, colours.WRONG
    elif comparison.ok and not {Change.UNKNOWN, Change.SLOWER} & set(changes):
        mark, style = sign.right, colours.RIGHT
    return Text(f"{mark} {_verdict(comparison)}", style=style)


# ---------------------------------------------------------------------------------------- tables


def _rows(comparison: Comparison, series: ComparedSeries, console: Console) -> RenderableType:
    sign = signs(console)

    def draw(_: int) -> Grid:
        columns = [Column(name, right=True) for name in ("Size", "Old", "New")]
        columns += [Column(name) for name in ("New/old", "Around 1", "Verdict")]
        grid = Grid(columns)
        for row in series.rows:
            found = row.outcome
            said = "can't tell" if found.change is Change.UNKNOWN else found.change.value
            style = UNSURE if comparison.is_suspect(found) else STYLES[found.change]
            verdict = Text(said + _mark(comparison, found, sign), style=style)
            times = (duration(row.old_median_s), duration(row.new_median_s))
            grid.rows.append(
                [exact_size(row.size_bytes), *times, _interval(found), bar(found, sign), verdict]
            )
        return grid

    return fitting(console, draw)


def bar(found: Compared, sign: Signs) -> str:
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


def _limits(comparison: Comparison, console: Console) -> RenderableType:
    """Both files' bandwidths, and latencies where something travels."""
    several = len({each.backend for each in comparison.limits}) > 1

    def draw(_: int) -> Grid:
        columns = [Column("Limit")]
        columns += [Column(name, right=True) for name in ("Old", "New", "Time, new/old")]
        grid = Grid(columns)
        for each in comparison.limits:
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


def _interval(found: Compared) -> str:
    """``1.21 (1.12-1.30)``."""
    if found.interval is None:
        return digits(found.ratio)
    low, high = map(digits, found.interval)
    return f"{digits(found.ratio)} ({low}-{high})"


def _mark(comparison: Comparison, found: Compared, sign: Signs) -> str:
    if found.gate is Gate.FAILS:
        return f" {sign.wrong}"
    return " !" if comparison.is_suspect(found) or found.explained_by else ""


# ----------------------------------------------------------------------------------------- words


def _verdict(comparison: Comparison) -> str:
    """What came of it: what failed, what changed, what did not, and what cannot be told."""
    limit = percent(comparison.threshold)
    failing = [each for each in comparison.every() if each.gate is Gate.FAILS]
    if failing:
        return (
            f"Slower by more than {percent(comparison.fail_over or 0)}: "
            f"{_counted(comparison, failing)}, up to {_worst(failing)} times as long."
        )
    unknown = [each for each in comparison.every() if each.change is Change.UNKNOWN]
    changed = [
        f"{_counted(comparison, found)} {change.value}"
        for change in (Change.SLOWER, Change.FASTER)
        if (found := [each for each in comparison.every() if each.change is change])
    ]
    same = [each for each in comparison.every() if each.change is Change.NONE]
    why = "the launches are too few, or scatter too widely"
    if any(each.explained_by for each in unknown):
        why = "the machine itself changed by more"
    rest = f"{_counted(comparison, unknown)} cannot be told: {why}"
    if any(each.ratio > 1 + comparison.threshold for each in unknown):
        rest += f"; up to {_worst(unknown)} times as long"
    if changed:
        end = f". {rest}" if unknown else ""
        return f"Changed by more than {limit}: {listing(changed)}{end}."
    if not unknown:
        return f"No change beyond {limit} ({plural(len(comparison.rows), 'size')} compared)."
    if not same:
        return f"It cannot be told whether anything changed: {why}."
    return f"{_counted(comparison, same)} unchanged within {limit}. {rest}."


def _counted(comparison: Comparison, found: list[Compared]) -> str:
    """``1 series and 2 sizes``; what is none is not named."""
    whole = sum(any(each.overall is one for one in found) for each in comparison.series)
    sizes = len(found) - whole
    return listing([f"{whole} series"] * bool(whole) + [plural(sizes, "size")] * bool(sizes))


def _worst(found: list[Compared]) -> str:
    return digits(max(each.ratio for each in found))


def _warnings(comparison: Comparison) -> Iterator[str]:
    """Why a change may be none of the code's."""
    for each in comparison.differences:
        if each.serious:
            yield f"{each.name}: {each.old} in the old file, {each.new} in the new one."
    for limit in comparison.limits:
        found = [each for each in comparison.every() if each.explained_by == limit]
        if found:
            word = "slower" if found[0].ratio > 1 else "faster"
            yield (
                f"{limit.backend}, {_name(limit)}: the machine itself got {word}, by more than "
                f"{_counted(comparison, found)} did."
            )
    for where in comparison.blocks:
        yield (
            f"{where}: blocks of one world stand for launches, so the intervals are too narrow: "
            "whole worlds differ by more."
        )


def _notes(comparison: Comparison, sign: Signs) -> Iterator[str]:
    arrow = "->" if sign == ASCII_SIGNS else "→"
    light = [each for each in comparison.differences if not each.serious]
    for each in light[:FEW]:
        yield f"Differs: {each.name}: {each.old} {arrow} {each.new}"
    if len(light) > FEW:
        yield f"{len(light) - FEW} more differences; --format json has them all."
    for one in comparison.unmatched:
        sizes = ", ".join(map(short_size, one.sizes_bytes[:FEW]))
        sizes += f" and {len(one.sizes_bytes) - FEW} more" * (len(one.sizes_bytes) > FEW)
        what = "all of it" if one.whole else sizes
        yield f"Only in the {one.file} file: {title(one.spec)}: {what}."
    yield from _doubts(comparison)


def _doubts(comparison: Comparison) -> Iterator[str]:
    """How much a change of the threshold's size could hide, and how sure the intervals are."""
    wide = [
        each
        for each in comparison.every()
        if each.interval is None
        or each.interval[1] / each.interval[0] > (1 + comparison.threshold) ** 2
    ]
    if wide:
        yield (
            f"A change of {percent(comparison.threshold)} could go unseen in "
            f"{_counted(comparison, wide)}: measure both with more --launches."
        )
    together = comparison.confidence
    if together is not None:
        said = f"All intervals of sizes hold together with {together:.1%} confidence"
        if together < SURE:
            own = min(row.outcome.confidence or 1.0 for row in comparison.rows)
            said = f"Each interval of a size holds with {own:.1%} confidence"
        yield f"{said}; whole runs differ by a few percent more."
