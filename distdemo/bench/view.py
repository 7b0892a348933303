"""Views of ``bench`` and ``bench links``, and the CSV of ``bench``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from rich.text import Text

from distdemo.bench.judge import GOOD, SLOW_RATIO
from distdemo.bench.records import (
    Answer,
    BenchReport,
    Link,
    LinksReport,
    Measurement,
    Series,
    SeriesSpec,
    SizeRow,
    series_names,
)
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import (
    digits,
    duration,
    exact_size,
    listing,
    percent,
    plural,
    plus_minus,
    ranks_text,
    rate,
    short_size,
)
from distdemo.view.tables import MANY, Column, Grid, grid_of

WIDE_MARK = "!"  # mark of an interval that is not steady
MACHINE = ("host", "processor")  # shown of the environment
MOST_LISTED = 16  # most slow links listed by name

# ----------------------------------------------------------------------------------------- report


def bench_view(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield a complete or partial measurement."""
    yield Summary(*answer_text(report, sign.half), "!")
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
    yield Paragraph(_circumstances(report, sign), colours.QUIET)


def _series(series: Series, sign: Signs) -> Iterator[Block]:
    """Yield the heading and rows of a series, and the reason if rows are missing."""
    spec = series.spec
    yield Heading(f" {sign.dot} ".join(spec.traits))
    if spec.refused:
        yield Paragraph(f"{sign.none} Not measured: {spec.refused}", colours.QUIET)
    if series.rows:
        yield _rows(series.rows, sign)
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


def _rows(rows: Sequence[SizeRow], sign: Signs) -> Grid:
    def width(row: SizeRow) -> Text:
        if row.spread_share is None:
            return Text(f"{sign.none}{WIDE_MARK}", colours.UNSURE)
        mark = (" " if row.steady else WIDE_MARK, colours.UNSURE)
        return Text.assemble(plus_minus(row.spread_share, sign.half), mark)

    def wrong(row: SizeRow) -> Text:
        if row.wrong:
            return Text(f"{sign.wrong} {row.wrong:,}", colours.WRONG)
        return Text("0" if row.checked else sign.none)

    def gigabytes(bytes_per_s: float) -> str:
        return digits(bytes_per_s / 1e9) if bytes_per_s else sign.none

    def limit(row: SizeRow) -> str:
        return sign.none if row.limit_share is None else percent(row.limit_share)

    def answer(row: SizeRow) -> Text:
        return Text(row.answer if row.why else "", "" if row.answer in GOOD else colours.UNSURE)

    return grid_of(
        rows,
        (Column("Size", right=True), lambda row: Text(exact_size(row.size_bytes), "bold")),
        (Column("Median", right=True), lambda row: duration(row.median_s)),
        (Column(sign.half, right=True), width),
        (Column("algbw\nGB/s", right=True), lambda row: gigabytes(row.algbw_bytes_per_s)),
        (Column("busbw\nGB/s", right=True), lambda row: gigabytes(row.busbw_bytes_per_s)),
        (Column("of\nlimit", right=True), limit),
        (Column("Wrong", right=True), wrong),
        (Column("Answer"), answer),
    )


def _side_by_side(report: BenchReport, sign: Signs) -> Iterator[Block]:
    """Yield one row per size and one column per series, with the fastest of each op marked."""
    rows = {(series.spec, row.size_bytes): row for series in report.measured for row in series.rows}
    rivals: dict[tuple[str, int], list[SizeRow]] = {}
    for (spec, size), row in rows.items():
        rivals.setdefault((spec.op.op, size), []).append(row)
    fastest = {place: fastest_of(rows) for place, rows in rivals.items()}

    def cell(spec: SeriesSpec, size: int) -> str:
        row = rows.get((spec, size))
        if row is None:
            return sign.none
        mark = f"{sign.best} " * (row is fastest[spec.op.op, size])
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
        yield Paragraph(f"{sign.best} fastest of its operation: its interval is below all others.")
    elif any(len(rows) > 1 for rows in rivals.values()):
        yield Paragraph("None is certainly the fastest of its operation: the intervals overlap.")


def fastest_of(rows: Sequence[SizeRow]) -> SizeRow | None:
    """Return the row whose interval is below those of all others; None if that is undecided."""
    best, *others = sorted(rows, key=lambda row: row.median_s)
    if not others or best.interval_s is None:
        return None
    lows = [row.interval_s[0] if row.interval_s else 0.0 for row in others]
    return best if best.interval_s[1] < min(lows) else None


def _circumstances(report: Measurement, sign: Signs) -> str:
    """Return the elapsed time, host and processor, if known, and the versions."""
    machine = (str(report.environment.get(name, "")) for name in MACHINE)
    libraries = (f"{name} {version}" for name, version in report.versions.items())
    parts = (duration(report.elapsed_s), *machine, *libraries)
    return f" {sign.dot} ".join(filter(None, parts))


# ------------------------------------------------------------------------------------- verdict


def answer_text(report: BenchReport, half: str = "±") -> tuple[str, bool | None]:
    """Return one sentence per answer, and True if all is well, None if not, False for a failure.

    Args:
        report: A complete or partial report.
        half: Sign before the half-width of an interval.
    """
    if not report.ok:
        return failure_text(report), False
    judged = [row for series in report.series for row in series.rows if row.why]
    sentences = []
    for answer in Answer:
        rows = [row for row in judged if row.answer is answer]
        if rows:
            best = max(rows, key=lambda row: row.busbw_bytes_per_s)
            some = f" ({len(rows)} of {plural(len(judged), 'size')})" * (len(rows) < len(judged))
            sentences.append(f"{answer.capitalize()}{some}: {best.why}.")
    if widths := [row.spread_share for row in judged if row.spread_share is not None]:
        sentences.append(f"Medians within {plus_minus(max(widths), half)}.")
    if checked := sum(row.checked for row in report.rows):
        sentences.append(f"{checked:,} elements verified.")
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    missing = total - len(report.rows)
    if missing and report.spec.fits_sizes:
        largest = max(row.size_bytes for row in report.rows)
        sentences.append(
            f"Sizes up to {short_size(largest)} fit into {duration(report.spec.budget_s)}; "
            "--budget and -e measure larger ones."
        )
        missing = 0
    if missing:
        what = f"{missing} of {plural(total, 'size')} weren't measured within the budget"
        sentences.append(f"{what}: raise --budget.")
    is_good = not missing and all(row.answer in GOOD for row in judged)
    return " ".join(sentences), is_good or None


def failure_text(report: BenchReport) -> str:
    """Return what is wrong with a report: the first wrong row, or why it is incomplete."""
    names = series_names([series.spec for series in report.series])
    for series in report.series:
        for row in series.rows:
            if row.wrong:
                where = f"{names[series.spec]} is wrong at {short_size(row.size_bytes)}"
                elements = f"{row.wrong:,} of {row.checked:,} elements"
                return f"{where}: {elements} differ from plain arithmetic."
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    done = f"{len(report.rows)} of {plural(total, 'size')} were measured."
    if report.world is not None and report.world.verdict is not None:
        return f"{report.world.verdict.what} {done}"
    if report.interrupted:
        return f"Interrupted: {done}"
    error = next((series.error for series in report.series if series.error), "")
    return f"{error} {done}".strip()


# --------------------------------------------------------------------------------------- links


def links_view(report: LinksReport, sign: Signs) -> Iterator[Block]:
    """Yield two tables with a row per sender, the slow links by name, and the verdict."""
    spec = report.spec
    sizes = f"{exact_size(spec.small_bytes)} and {exact_size(spec.large_bytes)}"
    title = ("links", plural(spec.world_size, "rank"), spec.backend, spec.device, sizes)
    yield Heading(f" {sign.dot} ".join(title))
    if spec.world_size <= MANY:
        yield from _matrix(report, sign, "Latency, µs", lambda link: 1e6 * link.latency_s)
        bandwidth = "Bandwidth, GB/s"
        yield from _matrix(report, sign, bandwidth, lambda link: link.bandwidth_bytes_per_s / 1e9)
    if report.slow:
        yield Paragraph()
        yield Heading(f"Slow links: more than {SLOW_RATIO:g} times the median")
    for link in report.slow[:MOST_LISTED]:
        figures = f"{duration(link.latency_s)}, {rate(link.bandwidth_bytes_per_s)}"
        yield Paragraph(f"{link.src} to {link.dst}: {figures} ({listing(link.slow)})")
    more = len(report.slow) - MOST_LISTED
    if more > 0:
        yield Paragraph(f"{more:,} more; --format json has them all", colours.QUIET)
    yield Paragraph()
    yield Paragraph(_circumstances(report, sign), colours.QUIET)
    doubtful = bool(report.slow_ranks or report.slow)
    yield Summary(links_text(report), None if report.ok and doubtful else report.ok, "!")


def _matrix(
    report: LinksReport, sign: Signs, name: str, value: Callable[[Link], float]
) -> Iterator[Block]:
    """Yield a table of a figure; ``!`` marks slow links, ``x`` those with wrong elements."""
    links = {(link.src, link.dst): link for link in report.links}
    ranks = range(report.spec.world_size)

    def cell(src: int, dst: int) -> str:
        link = links.get((src, dst))
        if link is None:
            return sign.none
        mark = "x" if link.wrong else "!" if link.slow else ""
        return f"{digits(value(link))}{mark}"

    columns = [Column("from \\ to", right=True), *(Column(str(rank), right=True) for rank in ranks)]
    grid = Grid(columns, [[str(src), *(cell(src, dst) for dst in ranks)] for src in ranks])
    yield Paragraph()
    yield Heading(name)
    yield grid


def links_text(report: LinksReport) -> str:
    """Return the verdict: incomplete or wrong links, slow ranks and slow links."""
    links = plural(report.spec.links, "link")
    measured = len(report.links)
    parts = [links if report.spec.links == measured else f"{measured:,} of {links} measured"]
    if report.median_latency_s is not None:
        bandwidth = rate(report.median_bandwidth_bytes_per_s or 0.0)
        parts.append(f"median {duration(report.median_latency_s)} and {bandwidth}")
    if report.wrong:
        parts.append(plural(report.wrong, "wrong element"))
    if report.slow_ranks:
        ranks = ranks_text(report.slow_ranks)
        slow = f"slow: rank{'s' * (len(report.slow_ranks) > 1)} {ranks}"
        parts.append(f"{slow} (check the host, not the links)")
    parts.append(f"slow links: {len(report.slow)}")
    return f"{'Interrupted: ' * report.interrupted}{', '.join(parts)}."


# -------------------------------------------------------------------------------------------- CSV

CALL_FIELDS = ("dtype", "reduce_op", "root", "pattern", "variant", "in_place")
SPEC_FIELDS = ("algorithm", "backend", "device", "world_size")
ROW_FIELDS = (
    *("size_bytes", "elements", "iterations", "median_s", "spread_share", "min_s", "p99_s"),
    *("max_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "checked", "wrong", "answer", "why"),
)


def to_csv(report: BenchReport) -> str:
    """Return one line per size with the JSON document's names (RFC 4180)."""
    machine = {name: report.environment.get(name) for name in MACHINE}
    machine["torch"] = report.versions.get("torch")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("op", *CALL_FIELDS, *SPEC_FIELDS, *ROW_FIELDS, *machine))
    for series in report.series:
        spec = series.spec
        of_series = [
            spec.op.op,
            *attrgetter(*CALL_FIELDS)(spec.op),
            *attrgetter(*SPEC_FIELDS)(spec),
        ]
        for row in series.rows:
            cells = (*of_series, *attrgetter(*ROW_FIELDS)(row), *machine.values())
            writer.writerow(map(_cell_text, cells))
    return text.getvalue()


def _cell_text(value: object) -> str:
    if isinstance(value, str):
        return one_line(str(value))
    return "" if value is None else json.dumps(value)
