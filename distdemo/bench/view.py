"""Report of a measurement: the answer, a table per series, the reasons. Its plot and its CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.text import Text

from distdemo.bench.answer import (
    advice_text,
    answer,
    headline,
    scope_text,
    series_names,
    why_text,
)
from distdemo.bench.records import (
    Answer,
    BenchReport,
    Judgement,
    Series,
    SeriesSpec,
    Setup,
    SizeRow,
    SizeVerdict,
    TransportLimit,
)
from distdemo.encoding import encode
from distdemo.launcher.clock import HOST
from distdemo.measure.timing import Start
from distdemo.view import colours
from distdemo.view.blocks import Block, Bullets, Heading, Paragraph, Summary
from distdemo.view.console import ASCII_SIGNS, Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import (
    digits,
    duration,
    exact_size,
    percent,
    plural,
    plus_minus,
    rate,
    short_size,
)
from distdemo.view.plot import Axis, Panel, PlotLine, lines
from distdemo.view.tables import Cell, Column, Grid

WIDE_MARK = "!"  # mark of an interval that is wider than requested
LIMIT_HUE = 7

# ----------------------------------------------------------------------------------------- report


def bench_view(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield a complete or partial measurement."""
    yield Summary(*answer(report, _half(sign)), "!")
    for series in report.series:
        yield Paragraph()
        yield from _series(series, sign)
    if len(report.measured) > 1:
        yield from _side_by_side(report, sign)
    yield from _section("Is this normal?", _verdicts(report))
    for title, lines_of in (("Measured", _method), ("Limits", _limits)):
        items = (
            Text(f"{setup.backend}: " * (len(report.setups) > 1) + line, style=colours.QUIET)
            for setup in report.setups
            for line in lines_of(setup)
        )
        yield from _section(title, items)
    for note in report.notes:
        yield Paragraph(note)
    names = series_names(report.series)
    averages = [  # over the sizes, as at the end of nccl-tests' output
        f"{names[series.spec]} {digits(average / 1e9)} GB/s"
        for series in report.measured
        if (average := fmean(row.busbw_bytes_per_s for row in series.rows))
    ]
    if averages:
        yield Paragraph()
        yield Paragraph(f"Average busbw: {', '.join(averages)}", colours.QUIET)
    footer = [duration(report.elapsed_s), *_machine(report)]
    yield Paragraph(f" {sign.dot} ".join(footer), colours.QUIET)


def _series(series: Series, sign: Signs) -> Iterator[Block]:
    """Yield the heading and rows of a series, and the reason if rows are missing."""
    spec = series.spec
    yield Heading(f" {sign.dot} ".join(filter(None, spec.traits().values())))
    if spec.refused:
        yield Paragraph(f"{sign.none} Not measured: {spec.refused}", colours.QUIET)
    if series.rows:
        shown = [column for column in COLUMNS if any(map(column.is_shown, series.rows))]
        heads = [
            Column(
                column.name.replace("±", _half(sign)), column.right, drop_order=column.drop_order
            )
            for column in shown
        ]
        yield Grid(heads, [[column.cell(row, sign) for column in shown] for row in series.rows])
        timed_by = "the host's clock" if series.clock == HOST else series.clock
        note = f"Timed by {timed_by}."
        if spec.op.dtype:
            factor = "" if series.busbw_formula == "1" else f"{series.busbw_formula} × "
            busbw = f"algbw is S / median, busbw {factor}algbw; S is {series.payload_is}."
            note = f"{busbw} {note}"
        if any(map(_is_too_wide, series.rows)):
            note += f" {WIDE_MARK}: wider than requested."
        yield Paragraph(note, colours.QUIET)
    if series.error:
        yield Paragraph(f"{sign.wrong} {series.error}", colours.WRONG)


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of figures about rows.

    Attributes:
        cell: Function that returns the cell of a row.
        drop_order: As that of `Column`.
        is_shown: Function that returns True if a row has a value in the column.
    """

    name: str
    cell: Callable[[SizeRow, Signs], Cell]
    drop_order: int = 0
    is_shown: Callable[[SizeRow], bool] = lambda _: True
    right: bool = True


def _half(sign: Signs) -> str:
    return "+-" if sign == ASCII_SIGNS else "±"


def _interval(row: SizeRow, sign: Signs) -> Text:
    """Return the half-width of the interval, marked if it is wider than requested."""
    if row.spread_share is None:
        return Text(sign.none, style=colours.QUIET)
    width = plus_minus(row.spread_share, _half(sign))
    if _is_too_wide(row):
        return Text(f"{width}{WIDE_MARK}", style=colours.UNSURE)
    return Text(f"{width} ")


def _is_too_wide(row: SizeRow) -> bool:
    return row.spread_share is not None and not row.steady


def _limit_share(row: SizeRow, sign: Signs) -> Cell:
    share = row.judgement.limit_share if row.judgement else None
    return Text(sign.none, style=colours.QUIET) if share is None else percent(share)


def _wrong(row: SizeRow, sign: Signs) -> Cell:
    if row.wrong:
        return Text(f"{sign.wrong} {row.wrong:,}", style=colours.WRONG)
    return "0" if row.checked else Text(sign.none, style=colours.QUIET)


def _verdict(row: SizeRow, _: Signs) -> Text:
    known = "" if row.verdict is SizeVerdict.UNKNOWN else row.verdict.value
    return Text(known, style="" if row.answer is Answer.NORMAL else colours.UNSURE)


def _moves_data(row: SizeRow) -> bool:
    return row.size_bytes > 0


COLUMNS: Sequence[RowColumn] = (
    RowColumn("Size", lambda row, _: Text(exact_size(row.size_bytes), style="bold")),
    RowColumn("Median", lambda row, _: duration(row.median_s)),
    RowColumn("±", _interval),
    RowColumn("min", lambda row, _: duration(row.min_s), 9),
    RowColumn("p10", lambda row, _: duration(row.p10_s), 7),
    RowColumn("p90", lambda row, _: duration(row.p90_s), 6),
    RowColumn("p99", lambda row, _: duration(row.p99_s), 4),
    RowColumn("max", lambda row, _: duration(row.max_s), 8),
    RowColumn("algbw\nGB/s", lambda row, _: digits(row.algbw_bytes_per_s / 1e9), 5, _moves_data),
    RowColumn("busbw\nGB/s", lambda row, _: digits(row.busbw_bytes_per_s / 1e9), 0, _moves_data),
    RowColumn(
        "of\nlimit", _limit_share, 2, lambda r: bool(r.judgement and r.judgement.limit_share)
    ),
    RowColumn("Wrong", _wrong),
    RowColumn(
        "Verdict", _verdict, 3, lambda row: row.verdict is not SizeVerdict.UNKNOWN, right=False
    ),
)


def _side_by_side(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield one row per size and one column per series, with the fastest of each op marked."""
    best = "*" if sign == ASCII_SIGNS else "★"
    rows = {(series.spec, row.size_bytes): row for series in report.measured for row in series.rows}

    def cell(spec: SeriesSpec, size: int) -> Cell:
        row = rows.get((spec, size))
        if row is None:
            return Text(sign.none, style=colours.QUIET)
        text = f"{duration(row.median_s)} {digits(row.busbw_bytes_per_s / 1e9):>6}"
        others = [
            other
            for (candidate, other_size), other in rows.items()
            if candidate.op.op == spec.op.op and other_size == size and candidate != spec
        ]
        if not others or any(_is_clearly_faster(other, row) for other in others):
            return Text(text)
        return Text(f"{best} ", style=colours.RIGHT) + Text(text, style="bold")

    names = series_names(report.measured)
    grid = Grid(
        [Column("Size", right=True), *(Column(name, right=True) for name in names.values())]
    )
    for size in sorted({size for _, size in rows}):
        grid.rows.append([exact_size(size), *(cell(spec, size) for spec in names)])
    yield Paragraph()
    yield Heading("Side by side: median, and busbw in GB/s")
    yield grid
    if any(str(text).startswith(best) for row in grid.rows for text in row):
        yield Paragraph(f"{best} may be the fastest of its op.", colours.QUIET)


def _is_clearly_faster(one: SizeRow, other: SizeRow) -> bool:
    """Return True if its interval ends before the other's begins; else compare the medians."""
    if one.interval_s is None or other.interval_s is None:
        return one.median_s < other.median_s
    return one.interval_s[1] < other.interval_s[0]


# ------------------------------------------------------------------------- reasons and the method


def _section(title: str, texts: Iterable[Text]) -> Iterator[Block]:
    """Yield a heading and a list, or nothing if there are no texts."""
    if items := tuple(texts):
        yield from (Paragraph(), Heading(title), Bullets(items))


def _verdicts(report: BenchReport) -> Iterator[Text]:
    """Yield one line per verdict and backend, with the reason of its last size."""
    by_verdict: dict[tuple[SizeVerdict, str], list[tuple[Series, SizeRow]]] = {}
    for series in report.series:
        for row in series.rows:
            if row.verdict is not SizeVerdict.UNKNOWN:
                key = (row.verdict, series.spec.backend)
                by_verdict.setdefault(key, []).append((series, row))
    for (verdict, _), pairs in by_verdict.items():
        rows = [row for _, row in pairs]
        style = colours.RIGHT if rows[0].answer is Answer.NORMAL else colours.UNSURE
        line = Text(f"{scope_text(pairs, report)}: ", style="bold")
        line.append(verdict.value, style=style)
        yield line.append(f". {why_text(rows)}{advice_text(rows)}", style="not bold")


def _method(setup: Setup) -> Iterator[str]:
    """Yield one line per aspect of the measurement."""
    if setup.launches:
        launches = "launch" if setup.launches == 1 else "launches"
        what = ", the first for verification and calibration" if setup.launches > 1 else ""
        yield f"{setup.launches:,} {launches} of {plural(setup.world_size, 'rank')}{what}"
    start = setup.alignment
    if start is not None:
        way = "shared memory" if start.way is Start.PAGE else "the group's barrier"
        end = "; their clocks can't be compared"
        if start.spread_s is not None:
            p99 = duration(start.spread_p99_s or 0.0)
            end = f"; the last starts {duration(start.spread_s)} after the first, p99 {p99}"
        yield f"common start through {way}: {duration(start.cost_s)}, not timed{end}"
    if setup.harness is not None:
        yield f"the loop adds {duration(setup.harness.inside_s)} to each time"
    load = setup.load
    if load is not None:
        taken = ""
        if load.taken_cores is not None:
            taken = f"other programs took {digits(load.taken_cores)} cores from the ranks; "
        least, most = min(load.copies_bytes_per_s), max(load.copies_bytes_per_s)
        yield f"{taken}copies ran at {rate(least)} to {rate(most)}"


def _limits(setup: Setup) -> Iterator[str]:
    """Yield one line per limit; one of them is named as the bound."""
    for limit in setup.limits:
        latency = "" if limit.latency_s is None else f", 8 B in {duration(limit.latency_s)}"
        bound = "; busbw is compared with it" if limit == setup.bound else ""
        yield (
            f"{limit.transport.value}: {rate(limit.bandwidth_bytes_per_s)} per rank, all at once"
            f"{latency} ({short_size(limit.size_bytes)} at a time{bound})"
        )


def _machine(report: BenchReport) -> Iterator[str]:
    """Yield host and processor, if known, and the versions."""
    yield from filter(None, (str(report.environment.get(n, "")) for n in ("host", "processor")))
    yield from (f"{name} {version}" for name, version in report.versions.items())


# ------------------------------------------------------------------------------------------- plot


def plot(report: BenchReport, file: Path | None) -> bytes:
    """Return the plot of time and bandwidth against size, with the limits.

    Args:
        report: Report with rows.
        file: File that it will be written to; its suffix determines the format.
    """
    size = Axis("Size", short_size)
    times = _lines(report, lambda _, seconds: seconds)
    rates = _lines(report, lambda row, seconds: row.busbw_factor * row.size_bytes / seconds)
    panels = [
        Panel(list(times), size, Axis("Time, median", duration)),
        Panel([*rates, *_limit_lines(report)], size, Axis("Bus bandwidth", rate)),
    ]
    notes = (" · ".join(_machine(report)), "lines: medians; shaded: p10 to p90")
    return lines(panels, headline(report), notes, file)


def _lines(report: BenchReport, figure: Callable[[SizeRow, float], float]) -> Iterator[PlotLine]:
    """Yield one line per series, with a figure of each row computed from its times."""
    names = series_names(report.series)
    for hue, series in enumerate(report.series):
        # Ops without a size, such as barrier, don't fit on an axis of sizes.
        rows = [row for row in series.rows if row.size_bytes and figure(row, row.median_s) > 0]
        points = [(row.size_bytes, figure(row, row.median_s)) for row in rows]
        band = [(figure(row, row.p10_s), figure(row, row.p90_s)) for row in rows]
        if rows:
            yield PlotLine(names[series.spec], points, hue, band=band)


def _limit_lines(report: BenchReport) -> Iterator[PlotLine]:
    """Yield each limit that busbw is compared with, as a horizontal line over all sizes."""
    bounds: dict[TransportLimit, list[str]] = {}
    for setup in report.setups:
        if setup.bound is not None:
            bounds.setdefault(setup.bound, []).append(setup.backend)
    sizes = [row.size_bytes for row in report.rows if row.size_bytes]
    for bound, names in bounds.items() if sizes else ():
        bandwidth = bound.bandwidth_bytes_per_s
        name = f"{bound.transport.value} {rate(bandwidth)} ({', '.join(names)})"
        yield PlotLine(
            name, [(min(sizes), bandwidth), (max(sizes), bandwidth)], LIMIT_HUE, "dashed"
        )


# -------------------------------------------------------------------------------------------- CSV

_OMITTED_FIELDS = frozenset(
    {"times_s", "sizes_bytes", "groups", "refused", "shape", "sizes", "splits"}
    | {"objects", "inference", "monitored", "straggler", "straggler_delay_s"}
)
"""Fields that are the same in every row, or have several values per row."""


def to_csv(report: BenchReport) -> str:
    """Return one line per size with the JSON document's names (RFC 4180)."""
    known: dict[str, Any] = {**report.environment, **report.versions}
    machine = {name: known.get(name) for name in ("host", "processor", "torch")}
    records = []
    for series in report.series:
        for row in series.rows:
            judged = replace(row, judgement=row.judgement or Judgement(SizeVerdict.UNKNOWN, ""))
            record = encode({"": series.spec, "row": judged, "machine": machine}, defaults=True)
            records.append(dict(_columns("", record)))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text, list(dict.fromkeys(name for record in records for name in record))
    )
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _columns(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a record's values, those of its inner records included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _columns(name if key == "name" else key, inner)
    elif name not in _OMITTED_FIELDS:
        text = one_line(value) if isinstance(value, str) else json.dumps(value)
        yield name, "" if value is None else text
