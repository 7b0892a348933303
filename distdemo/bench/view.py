"""Report of a measurement: the answer and a table per series; its CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

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
        names = ("Size", "Median", _half(sign), "algbw\nGB/s", "busbw\nGB/s", "of\nlimit", "Wrong")
        columns = [*(Column(name, right=True) for name in names), Column("Answer")]
        yield Grid(columns, [_cells(row, sign) for row in series.rows])
        traffic = spec.operation.traffic(spec.at(0))
        factor = "" if traffic.busbw_formula == "1" else f"{traffic.busbw_formula} × "
        notes = (
            [f"busbw is {factor}S / median; S is {traffic.payload_is}."] if spec.op.dtype else []
        )
        if any(not row.steady for row in series.rows):
            notes.append(f"{WIDE_MARK}: not steady.")
        yield Paragraph(" ".join(notes), colours.QUIET)
    if series.error:
        yield Paragraph(f"{sign.wrong} {series.error}", colours.WRONG)


def _half(sign: Signs) -> str:
    return "+-" if sign == ASCII_SIGNS else "±"


def _cells(row: SizeRow, sign: Signs) -> list[Cell]:
    width = Text(f"{sign.none}{WIDE_MARK}", style=colours.UNSURE)
    if row.spread_share is not None:
        width = Text(plus_minus(row.spread_share, _half(sign)))
        width.append(" " if row.steady else WIDE_MARK, style=colours.UNSURE)
    wrong = Text(f"{row.wrong:,}" if row.checked else sign.none)
    if row.wrong:
        wrong = Text(f"{sign.wrong} {row.wrong:,}", style=colours.WRONG)
    rates = (row.algbw_bytes_per_s, row.busbw_bytes_per_s)
    return [
        Text(exact_size(row.size_bytes), style="bold"),
        duration(row.median_s),
        width,
        *(digits(bandwidth / 1e9) if bandwidth else sign.none for bandwidth in rates),
        sign.none if row.limit_share is None else percent(row.limit_share),
        wrong,
        Text(row.answer if row.why else "", style="" if row.answer in GOOD else colours.UNSURE),
    ]


def _side_by_side(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield one row per size and one column per series, with the fastest of each op marked."""
    best = "*" if sign == ASCII_SIGNS else "★"
    rows = {(series.spec, row.size_bytes): row for series in report.measured for row in series.rows}
    rivals: dict[tuple[str, int], list[SizeRow]] = {}
    for (spec, size), row in rows.items():
        rivals.setdefault((spec.op.op, size), []).append(row)
    fastest = {place: fastest_of(rows) for place, rows in rivals.items()}

    def cell(spec: SeriesSpec, size: int) -> str:
        row = rows.get((spec, size))
        if row is None:
            return sign.none
        mark = f"{best} " * (row is fastest[spec.op.op, size])
        return f"{mark}{duration(row.median_s)} {digits(row.busbw_bytes_per_s / 1e9):>6}"

    names = series_names([series.spec for series in report.measured])
    heads = [Column(name.replace(" ", "\n"), right=True) for name in names.values()]
    grid = Grid([Column("Size", right=True), *heads])
    for size in sorted({size for _, size in rows}):
        grid.rows.append([exact_size(size), *(cell(spec, size) for spec in names)])
    yield Paragraph()
    yield Heading("Side by side: median, and busbw in GB/s")
    yield grid
    if any(fastest.values()):
        yield Paragraph(f"{best} fastest of its operation: its interval is below all others.")
    elif any(len(rows) > 1 for rows in rivals.values()):
        yield Paragraph("None is certainly the fastest of its operation: the intervals overlap.")


def fastest_of(rows: Sequence[SizeRow]) -> SizeRow | None:
    """Return the row whose interval is below those of all others; None if that is undecided."""
    best, *others = sorted(rows, key=lambda row: row.median_s)
    if not others or best.interval_s is None:
        return None
    lows = [row.interval_s[0] if row.interval_s else 0.0 for row in others]
    return best if best.interval_s[1] < min(lows) else None


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
