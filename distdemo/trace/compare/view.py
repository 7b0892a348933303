"""Blocks and plot of compared algorithms: a table per size, sentences about all, the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from distdemo.trace.compare.records import Candidate, ComparedSize, Comparison
from distdemo.trace.texts import agreement_sign, link_text, payload_text
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    duration,
    exact_size,
    listing,
    plural,
    plus_minus,
    short_size,
    times,
)
from distdemo.view.tables import Column, Grid

ON_PAPER = "SIMULATION: nothing was run."
NOTES = (
    "Sent: by the rank that sends most. Busiest: sent plus received. "
    "α–β: α per round plus β per byte of its largest message; assumes that no link is shared and "
    "reducing is free. ±: half the median's 95 % interval, or half the range if there are few runs."
)
STAR = "★"


def comparison_view(report: Comparison, sign: Signs) -> Iterator[Block]:
    """Yield the tables of all sizes, the sentences about all of them, and the verdict."""
    if report.simulated:
        yield Paragraph(ON_PAPER, "bold")
        yield Paragraph()
    for size in report.sizes:
        yield Heading(f" {sign.dot} ".join(_title(size, report)))
        yield _grid(report, size, sign)
        for sentence in _size_notes(size, report):
            yield Paragraph(sentence)
        yield Paragraph()
    differences = list(_mismatches(report))
    for sentence in differences:
        yield Paragraph(sentence, colours.WRONG)
    rows = [each for size in report.sizes for each in size.candidates if each.counts]
    if any(not each.checks for each in rows):
        yield Paragraph(
            "Rounds and bytes come from the formulas for equal chunks; see distdemo trace list."
        )
    elif rows and not differences:
        yield Paragraph(
            "Every count matches its formula for equal chunks; see distdemo trace list."
        )
    for sentence in _model(report):
        yield Paragraph(sentence)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    for note in (NOTES, *_notes(report), versions):
        yield Paragraph(note, colours.QUIET)
    ok = None if report.simulated else report.ok and not report.interrupted
    yield Summary(_verdict(report), ok)


# ------------------------------------------------------------------------------------------ table

DROP_ORDER = {"Busiest": 4, "× own": 3, "±": 2, "Total": 1}
"""Columns that a narrow terminal drops, as in ``view.tables.Column``."""


def _grid(report: Comparison, size: ComparedSize, sign: Signs) -> Grid:
    """Return the table with the columns that aren't empty."""
    rows = [_cells(row, size) for row in size.candidates]
    shown = [name for name in rows[0] if any(cells[name] for cells in rows)]
    columns = [Column(name, right=True, drop_order=DROP_ORDER.get(name, 0)) for name in shown]
    grid = Grid([Column("Algorithm"), *columns])
    none = Text(sign.none, style=colours.QUIET)
    for row, cells in zip(size.candidates, rows, strict=True):
        style = "bold" if row is size.best else colours.WRONG if row.is_wrong else ""
        lead = f"{STAR} " if row is size.best else "  "
        name = Text(f"{lead}{name_of(row, report)}", style=style)
        grid.rows.append([name, *(cells[each] or none for each in shown)])
    return grid


def _cells(row: Candidate, size: ComparedSize) -> dict[str, str]:
    """Return a row's cells by column: counts, and the predicted and the measured time."""
    counts, timing, own = row.counts, row.timing, size.own
    cells = dict.fromkeys(("Rounds", "Sent", "Busiest", "Total", "α–β", "Median", "±", "× own"), "")
    if counts is not None:
        cells["Rounds"] = f"{counts.rounds:,}"
        cells["Sent"] = short_size(counts.sent_bytes)
        cells["Busiest"] = short_size(counts.busiest_bytes)
        cells["Total"] = short_size(counts.total_bytes)
    if row.predicted_s is not None:
        cells["α–β"] = duration(row.predicted_s)
    if row.refused:
        cells["Median"] = "not run"
    if timing is not None:
        cells["Median"] = duration(timing.median_s)
        if timing.median_s > 0:
            half = (timing.high_s - timing.low_s) / 2
            cells["±"] = plus_minus(half / timing.median_s, "")
        if own is not None and own is not row and own.timing and own.timing.median_s:
            cells["× own"] = times(timing.median_s / own.timing.median_s)
    return cells


def name_of(row: Candidate, report: Comparison) -> str:
    """Return the algorithm's name, or ``gloo's own``."""
    if not row.own:
        return row.algorithm
    return f"{report.settings.backend}'s own" if report.settings else "the backend's own"


# ------------------------------------------------------------------------------------- sentences


def _title(size: ComparedSize, report: Comparison) -> list[str]:
    """Return ``all_reduce``, ``1 KiB, one rank's tensor``, ``4 ranks``, ``float32 sum``, ..."""
    op, world = size.op, report.settings
    parts = (
        op.op,
        payload_text(size.traffic),
        plural(report.world_size, "rank"),
        f"{op.dtype} {op.reduce_op or ''}".strip(),
        "" if op.root is None else f"root {op.root}",
        *(("simulation",) if world is None else (world.backend, world.device)),
    )
    return list(filter(None, parts))


def _size_notes(size: ComparedSize, report: Comparison) -> Iterator[str]:
    """Yield the fastest candidate, the model's choice, and those not run or wrong."""
    best = size.best
    if best is not None:
        ties = listing([name_of(each, report) for each in size.ties])
        text = " by the model" if best.timing is None else ""
        text += f" at {exact_size(size.traffic.payload_bytes)}"
        text += f", but not clearly faster than {ties}" if ties else ""
        ran = {each.algorithm: each.predicted_s for each in size.candidates if each.timing}
        known = {name: seconds for name, seconds in ran.items() if seconds}
        if len(known) > 1:
            least = min(known.values())
            first = listing([name for name, seconds in known.items() if seconds == least])
            text += f"; the model predicts {first}"
        yield f"{STAR} {name_of(best, report)} is the fastest{text}."
    for each in size.candidates:
        if each.refused:
            yield f"{name_of(each, report)} was not run: {each.refused.rstrip('.')}."
        elif each.is_wrong and each.timing is not None:
            wrong, checked = each.timing.wrong, each.timing.checked
            yield f"{name_of(each, report)}: {wrong:,} of {checked:,} elements are wrong."


def _mismatches(report: Comparison) -> Iterator[str]:
    """Yield one sentence per count that differs from its formula or from the bytes sent."""
    for size in report.sizes:
        for each in size.candidates:
            where = f"≠ {each.algorithm} at {exact_size(size.traffic.payload_bytes)}"
            for check in each.checks:
                if agreement_sign(check) == "≠":
                    text = f"{check.formula} gives {check.value:,g}, counted {check.counted:,}"
                    yield f"{where}, {check.name}: {text}."
            counted = each.counts if each.checks else None
            if counted and each.handed_bytes not in (None, counted.total_bytes):
                sends = f"its schedule sends {counted.total_bytes:,} B"
                yield f"{where} handed {each.handed_bytes:,} B to the backend; {sends}."


def _model(report: Comparison) -> Iterator[str]:
    """Yield the fastest algorithms by the α–β model, and α and β."""
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
    missing = report.requested_sizes - len(report.sizes)
    if missing:
        yield f"{missing} of {report.requested_sizes} sizes are missing: the run ended early."


def _verdict(report: Comparison) -> str:
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


# ------------------------------------------------------------------------------------------- plot


def plot(report: Comparison, file: Path | None) -> bytes:
    """Return a plot of time against size, predictions dashed; of bytes if no time is known.

    Args:
        report: Comparison to draw. Without sizes, the axes are empty.
        file: File that it will be written to.
    """
    from distdemo.view.plot import Axis, Line, Panel, lines

    rows: dict[str, list[tuple[int, Candidate]]] = {}
    for size in report.sizes:
        for row in size.candidates:
            rows.setdefault(name_of(row, report), []).append((size.traffic.payload_bytes, row))
    timed = any(row.seconds is not None for found in rows.values() for _, row in found)
    series = []
    for hue, (name, found) in enumerate(rows.items()):
        model = [(size, _predicted(row, timed=timed)) for size, row in found]
        points = [(size, value) for size, value in model if value and size]
        if report.simulated:
            series.append(Line(name, points, hue))
            continue
        ran = [(size, row.timing.median_s) for size, row in found if row.timing and size]
        series.append(Line(name, ran, hue))
        if points:
            series.append(Line("α–β model", points, hue, "dashed"))
    y = Axis("Time", duration) if timed else Axis("Bytes through the busiest rank", short_size)
    title = _title(report.sizes[0], report) if report.sizes else ["nothing was measured"]
    if len(report.sizes) > 1:
        del title[1]  # the size
    notes = [ON_PAPER] if report.simulated else []
    notes += _model(report)
    notes.append(" · ".join(f"{name} {version}" for name, version in report.versions.items()))
    return lines(
        [Panel(series, Axis("Size", short_size, log=2), y)], " · ".join(title), notes, file
    )


def _predicted(row: Candidate, *, timed: bool) -> float | None:
    """Return the predicted seconds, or the counted bytes of the busiest rank."""
    if timed:
        return row.predicted_s
    return None if row.counts is None else row.counts.busiest_bytes
