"""Report of a measurement: the answer and a table per series; its CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from distdemo.bench.judge import GOOD, answer_text
from distdemo.bench.records import BenchReport, Series, SeriesSpec, SizeRow, series_names
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
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
)
from distdemo.view.tables import Cell, Column, Grid

WIDE_MARK = "!"  # mark of an interval that is not steady

# ----------------------------------------------------------------------------------------- report


def bench_view(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield a complete or partial measurement."""
    yield Summary(*answer_text(report, _half(sign)), "!")
    for series in report.series:
        yield Paragraph()
        yield from _series(series, sign)
    if len(report.measured) > 1:
        yield from _side_by_side(report, sign)
    yield Paragraph()
    for setup in report.setups:
        text = f"{setup.backend}: {plural(setup.launches, 'world')}"
        if setup.limit is not None:
            stream = rate(setup.limit.bandwidth_bytes_per_s)
            text += f"; a TCP stream carries {stream}, and 8 B in {duration(setup.limit.latency_s)}"
        if setup.taken_cores is not None:
            text += f"; other programs took {digits(setup.taken_cores)} cores from the ranks"
        yield Paragraph(f"{text}.", colours.QUIET)
    for note in report.notes:
        yield Paragraph(note)
    yield Paragraph(f" {sign.dot} ".join(_circumstances(report)), colours.QUIET)


def _series(series: Series, sign: Signs) -> Iterator[Block]:
    """Yield the heading and rows of a series, and the reason if rows are missing."""
    spec = series.spec
    yield Heading(f" {sign.dot} ".join(spec.traits))
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
        notes = []
        if spec.op.dtype:
            traffic = spec.operation.traffic(spec.at(0))
            factor = "" if traffic.busbw_formula == "1" else f"{traffic.busbw_formula} × "
            notes.append(f"busbw is {factor}S / median; S is {traffic.payload_is}.")
        if any(map(_is_too_wide, series.rows)):
            notes.append(f"{WIDE_MARK}: not steady.")
        yield Paragraph(" ".join(notes), colours.QUIET)
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
    """Return the half-width of the interval, marked if it is not steady."""
    if row.spread_share is None:
        return Text(sign.none, style=colours.QUIET)
    width = plus_minus(row.spread_share, _half(sign))
    if _is_too_wide(row):
        return Text(f"{width}{WIDE_MARK}", style=colours.UNSURE)
    return Text(f"{width} ")


def _is_too_wide(row: SizeRow) -> bool:
    return row.spread_share is not None and not row.steady


def _limit_share(row: SizeRow, sign: Signs) -> Cell:
    return sign.none if row.limit_share is None else percent(row.limit_share)


def _wrong(row: SizeRow, sign: Signs) -> Cell:
    if row.wrong:
        return Text(f"{sign.wrong} {row.wrong:,}", style=colours.WRONG)
    return "0" if row.checked else Text(sign.none, style=colours.QUIET)


def _moves_data(row: SizeRow) -> bool:
    return row.size_bytes > 0


COLUMNS: Sequence[RowColumn] = (
    RowColumn("Size", lambda row, _: Text(exact_size(row.size_bytes), style="bold")),
    RowColumn("Median", lambda row, _: duration(row.median_s)),
    RowColumn("±", _interval),
    RowColumn("min", lambda row, _: duration(row.min_s), 6),
    RowColumn("p99", lambda row, _: duration(row.p99_s), 4),
    RowColumn("max", lambda row, _: duration(row.max_s), 5),
    RowColumn("algbw\nGB/s", lambda row, _: digits(row.algbw_bytes_per_s / 1e9), 3, _moves_data),
    RowColumn("busbw\nGB/s", lambda row, _: digits(row.busbw_bytes_per_s / 1e9), 0, _moves_data),
    RowColumn("of\nlimit", _limit_share, 2, lambda row: row.limit_share is not None),
    RowColumn("Wrong", _wrong),
    RowColumn(
        "Answer",
        lambda row, _: Text(row.answer, style="" if row.answer in GOOD else colours.UNSURE),
        0,
        lambda row: bool(row.why),
        right=False,
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
        rivals = [
            rows[other, size].median_s
            for other in names
            if other.op.op == spec.op.op and (other, size) in rows
        ]
        if len(rivals) < 2 or row.median_s > min(rivals):
            return Text(text)
        return Text(f"{best} ", style=colours.RIGHT) + Text(text, style="bold")

    names = series_names([series.spec for series in report.measured])
    heads = [Column(name.replace(" ", "\n"), right=True) for name in names.values()]
    grid = Grid([Column("Size", right=True), *heads])
    for size in sorted({size for _, size in rows}):
        grid.rows.append([exact_size(size), *(cell(spec, size) for spec in names)])
    yield Paragraph()
    yield Heading(f"Side by side: median, and busbw in GB/s ({best} smallest median of the op)")
    yield grid


def _circumstances(report: BenchReport) -> Iterator[str]:
    """Yield the elapsed time, host and processor, if known, and the versions."""
    yield duration(report.elapsed_s)
    yield from filter(None, (str(report.environment.get(n, "")) for n in ("host", "processor")))
    yield from (f"{name} {version}" for name, version in report.versions.items())


# -------------------------------------------------------------------------------------------- CSV

CALL_FIELDS = ("dtype", "reduce_op", "root", "pattern", "variant", "in_place")
SPEC_FIELDS = ("algorithm", "backend", "device", "world_size")
ROW_FIELDS = (
    *("size_bytes", "elements", "iterations", "median_s", "spread_share", "min_s", "p99_s"),
    *("max_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "checked", "wrong", "answer", "why"),
)


def to_csv(report: BenchReport) -> str:
    """Return one line per size with the JSON document's names (RFC 4180)."""
    machine = {name: report.environment.get(name) for name in ("host", "processor")}
    machine["torch"] = report.versions.get("torch")
    text = io.StringIO(newline="")
    names = ("op", *CALL_FIELDS, *SPEC_FIELDS, *ROW_FIELDS, *machine)
    writer = csv.writer(text)
    writer.writerow(names)
    for series in report.series:
        call = series.spec.op
        for row in series.rows:
            cells = [
                call.op,
                *(getattr(call, name) for name in CALL_FIELDS),
                *(getattr(series.spec, name) for name in SPEC_FIELDS),
                *(getattr(row, name) for name in ROW_FIELDS),
                *machine.values(),
            ]
            writer.writerow(map(_cell_text, cells))
    return text.getvalue()


def _cell_text(value: object) -> str:
    if isinstance(value, str):
        return one_line(str(value))
    return "" if value is None else json.dumps(value)
