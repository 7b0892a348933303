"""View of compared algorithms: one table per size with costs and times, then a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.trace.compare.records import Candidate, ComparedSize, Comparison
from distdemo.trace.records import Counts, TraceSpec
from distdemo.trace.texts import link_text, payload_text, sameness
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import (
    duration,
    exact_size,
    listing,
    plural,
    plus_minus,
    short_size,
    times,
)
from distdemo.view.tables import Column, Grid, fitting, heading

ON_PAPER = "SIMULATION: nothing was run."
NOTES = (
    "Sent: by the rank that sends most. Busiest: sent plus received. "
    "α–β: α per round plus β per byte of its largest message; assumes that no link is shared and "
    "reducing is free. ±: half the median's 95 % interval, or half the range if there are few runs."
)
STAR = "★"


def table(report: Comparison, console: Console) -> Group:
    """Return the tables of all sizes, the sentences about all of them, and the verdict."""
    dot = signs(console).dot
    parts: list[RenderableType] = [Text(ON_PAPER, "bold"), Text()] if report.simulated else []
    for size in report.sizes:
        parts.append(heading(title(size, report).replace(" · ", f" {dot} ")))
        parts.append(fitting(console, partial(_grid, report, size, signs(console))))
        parts += [Text(text) for text in _legend(size, report)]
        parts.append(Text())
    parts += [Text(text, style=colours.WRONG) for text in _differing(report)]
    parts += [Text(text) for text in below(report)]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    quiet = [NOTES, *_notes(report), versions]
    parts += [Text(text, style=colours.QUIET) for text in quiet]
    return Group(*parts, summary(report, console))


def summary(report: Comparison, console: Console) -> Text:
    """Return the verdict in one line."""
    sign = signs(console)
    if not report.ok or report.interrupted:
        return Text(f"{sign.wrong} {verdict(report)}", style=colours.WRONG)
    if report.simulated:
        return Text(verdict(report), style="bold")
    return Text(f"{sign.right} {verdict(report)}", style=colours.RIGHT)


def plot(report: Comparison, kind: str) -> bytes:
    """Return a plot of time against size, one line per algorithm, as ``png`` or ``svg``."""
    from distdemo.trace.compare.plot import draw

    return draw(report, kind)


def _page(report: Comparison) -> str:
    """Return the page of a simulated algorithm, with the contributions after each round."""
    from distdemo.trace.page import page
    from distdemo.trace.report import make_report

    algorithm = report.algorithms[0].name
    return page(make_report(TraceSpec(report.sizes[0].spec, algorithm, report.chunks)))


FILES = {".html": _page}
"""Writers for ``--output`` by file extension, in addition to JSON and text."""


# ------------------------------------------------------------------------------------------ table


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column.

    Attributes:
        cell: Function that returns the text for a row, or None if there is none.
        room: Room as in ``view.tables.WIDTHS``; with less of it the column is omitted.
    """

    name: str
    cell: Callable[[Candidate, ComparedSize], str | None]
    room: int = 0


def _of_counts(pick: Callable[[Counts], str]) -> Callable[[Candidate, ComparedSize], str | None]:
    return lambda row, _: None if row.counts is None else pick(row.counts)


def _median(row: Candidate, _: ComparedSize) -> str | None:
    if row.refused:
        return "not run"
    return None if row.timing is None else duration(row.timing.median_s)


def _interval(row: Candidate, _: ComparedSize) -> str | None:
    """Return half the interval's width as a share of the median."""
    if row.timing is None or row.timing.median_s <= 0:
        return None
    half = (row.timing.high_s - row.timing.low_s) / 2 / row.timing.median_s
    return plus_minus(half, "")


def _ratio_to_own(row: Candidate, size: ComparedSize) -> str | None:
    """Return the time as a multiple of the backend's own call."""
    own = size.own
    if row.own or row.timing is None or own is None or own.timing is None:
        return None
    return times(row.timing.median_s / own.timing.median_s) if own.timing.median_s else None


QUANTITIES = (
    Quantity("Rounds", _of_counts(lambda counts: f"{counts.rounds:,}")),
    Quantity("Sent", _of_counts(lambda counts: short_size(counts.sent_bytes))),
    Quantity("Busiest", _of_counts(lambda counts: short_size(counts.busiest_bytes)), room=60),
    Quantity("Total", _of_counts(lambda counts: short_size(counts.total_bytes)), room=17),
    Quantity("α–β", lambda row, _: None if row.predicted_s is None else duration(row.predicted_s)),
    Quantity("Median", _median),
    Quantity("±", _interval, room=22),
    Quantity("× own", _ratio_to_own, room=28),
)
"""Columns: rounds and bytes counted from the schedule (of the rank that sends most, of the busiest
one, of all ranks), then the predicted and the measured time."""


def _grid(report: Comparison, size: ComparedSize, sign: Signs, room: int) -> Grid:
    """Return the table with the columns that fit and aren't empty."""
    shown = [
        each
        for each in QUANTITIES
        if each.room <= room and any(each.cell(row, size) is not None for row in size.candidates)
    ]
    grid = Grid([Column("Algorithm"), *(Column(each.name, right=True) for each in shown)])
    none = Text(sign.none, style=colours.QUIET)
    for row in size.candidates:
        style = "bold" if row is size.best else colours.WRONG if row.is_wrong else ""
        lead = f"{STAR} " if row is size.best else "  "
        name = Text(f"{lead}{name_of(row, report)}", style=style)
        grid.rows.append([name, *(each.cell(row, size) or none for each in shown)])
    return grid


def name_of(row: Candidate, report: Comparison) -> str:
    """Return the algorithm's name, or ``gloo's own``."""
    if not row.own:
        return row.algorithm
    return f"{report.settings.backend}'s own" if report.settings else "the backend's own"


# ------------------------------------------------------------------------------------- sentences


def title(size: ComparedSize, report: Comparison) -> str:
    """Return ``all_reduce · 1 KiB, one rank's tensor · 4 ranks · float32 sum · gloo · cpu``."""
    op, world = size.spec, report.settings
    root = "" if op.root is None else f"root {op.root}"
    data = f"{op.dtype} {op.reduce_op or ''}".strip()
    ran = (world.backend, world.device) if world is not None else ("simulation",)
    ranks = plural(report.world_size, "rank")
    parts = (op.op, payload_text(size.traffic), ranks, data, root, *ran)
    return " · ".join(filter(None, parts))


def _legend(size: ComparedSize, report: Comparison) -> Iterator[str]:
    """Yield the fastest candidate, the model's choice, and those not run or wrong."""
    best, ran = size.best, [each for each in size.candidates if each.timing and each.predicted_s]
    if best is not None:
        near = listing([name_of(each, report) for each in size.near])
        text = " by the model" if best.timing is None else ""
        text += f" at {exact_size(size.traffic.payload_bytes)}"
        text += f", but not clearly faster than {near}" if near else ""
        if len(ran) > 1:
            least = min(each.predicted_s or 0.0 for each in ran)
            first = listing([each.algorithm for each in ran if each.predicted_s == least])
            text += f"; the model predicts {first}"
        yield f"{STAR} {name_of(best, report)} is the fastest{text}."
    for each in size.candidates:
        if each.refused:
            yield f"{name_of(each, report)} was not run: {each.refused.rstrip('.')}."
        elif each.is_wrong and each.timing is not None:
            wrong, checked = each.timing.wrong, each.timing.checked
            yield f"{name_of(each, report)}: {wrong:,} of {checked:,} elements are wrong."


def _differing(report: Comparison) -> Iterator[str]:
    """Yield one sentence per count that differs from its formula or from the bytes sent."""
    for size in report.sizes:
        for each in size.candidates:
            where = f"≠ {each.algorithm} at {exact_size(size.traffic.payload_bytes)}"
            for check in each.checks:
                if sameness(check) == "≠":
                    text = f"{check.formula} gives {check.value:,g}, counted {check.counted:,}"
                    yield f"{where}, {check.name}: {text}."
            counted = each.counts if each.checks else None
            if counted and each.handed_bytes not in (None, counted.total_bytes):
                sends = f"its schedule sends {counted.total_bytes:,} B"
                yield f"{where} handed {each.handed_bytes:,} B to the backend; {sends}."


def below(report: Comparison) -> Iterator[str]:
    """Yield the sentences about all sizes."""
    rows = [each for size in report.sizes for each in size.candidates if each.counts]
    if any(not each.checks for each in rows):
        yield "Rounds and bytes come from the formulas for equal chunks; see distdemo trace list."
    elif rows and not any(_differing(report)):
        yield "Every count matches its formula for equal chunks; see distdemo trace list."
    if report.crossovers:
        parts = [f"{each.below} up to {short_size(each.size_bytes)}" for each in report.crossovers]
        last = report.crossovers[-1].above
        yield f"Fastest by the α–β model: {', '.join(parts)}, {last} above."
    if report.link is not None:
        yield link_text(report.link)


def _notes(report: Comparison) -> Iterator[str]:
    """Yield notes about this comparison."""
    if report.simulated and report.link is None:
        yield "Predicted times require --alpha and --beta, or --fit with a file of bench."
    if report.cores is not None and report.world_size > report.cores:
        yield f"{report.world_size} ranks share {report.cores:g} cores, which the model ignores."
    missing = report.sizes_asked - len(report.sizes)
    if missing:
        yield f"{missing} of {report.sizes_asked} sizes are missing: the run ended early."


def verdict(report: Comparison) -> str:
    """Return the outcome in one line."""
    ran, sizes = report.timings, plural(len(report.sizes), "size")
    if report.simulated:
        return f"Simulated: {sizes} on {plural(report.world_size, 'rank')}. Nothing was run."
    if report.interrupted and not ran:
        return "Interrupted before the first size was finished."
    lead = "Interrupted. Until then: " if report.interrupted else ""
    wrong, checked = sum(each.wrong for each in ran), sum(each.checked for each in ran)
    if wrong:
        return f"{lead}{plural(wrong, 'wrong element')} of {checked:,}."
    if report.world is not None and not report.world.ok:
        return f"The world failed after {plural(len(ran), 'row')} had been measured."
    return f"{lead}{plural(len(ran), 'row')} at {sizes} verified: {checked:,} elements are right."
