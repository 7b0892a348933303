"""A measurement as people read it: the answer, a table a series, the reasons; CSV; live."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.bench.answer import FEW, answer, labels, names_of, traits, where
from distdemo.bench.records import (
    BenchReport,
    Judgement,
    Limit,
    Row,
    Series,
    Setup,
    Start,
    Verdict,
)
from distdemo.encoding import encode
from distdemo.launcher.clock import HOST
from distdemo.view import colours
from distdemo.view.console import ASCII_SIGNS, Signs, signs
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
from distdemo.view.tables import NARROW, Cell, Column, Grid, fitting, frame, heading, select, widest

UNSURE = "yellow"
LISTED = 3  # what goes before this is not in a list on a narrow terminal, either
WIDE = "!"  # behind an interval that is wider than was asked for


def summary(report: BenchReport, console: Console) -> Text:
    """Normal, not normal or not measurable now, and why: in one sentence or two."""
    sign = signs(console)
    text, ok = answer(report, _half(sign))
    if ok:
        return Text(f"{sign.right} {text}", style=colours.RIGHT)
    style = UNSURE if report.ok else colours.WRONG
    return Text(f"{WIDE if report.ok else sign.wrong} {text}", style=style)


# ------------------------------------------------------------------------------------------ table


def table(report: BenchReport, console: Console) -> Group:
    """A measurement, whole or as far as it went. Why a world failed the runner shows before.

    Args:
        report: of it.
        console: that it will be printed on.
    """
    sign = signs(console)
    parts: list[RenderableType] = [summary(report, console)]
    for series in report.series:
        parts += [Text(), *_series(series, console)]
    if len(report.measured) > 1 and console.width >= NARROW:
        parts += _side_by_side(report, console)
    parts += _titled("Is this normal?", _verdicts(report), console)
    parts += _titled("Overlap", _overlaps(report), console)
    for series in report.series:
        parts += _skew(series, report, console)
    parts += _facts(report, console)
    parts += [Text(note) for note in report.notes]
    moving = [each for each in report.measured if each.rows[-1].busbw_bytes_per_s]
    if moving:  # as nccl-tests ends with it, over the sizes
        told = []
        for words, each in zip(labels(moving), moving, strict=True):
            average = fmean(row.busbw_bytes_per_s for row in each.rows) / 1e9
            name = f"{' '.join(words)} " if len(moving) > 1 else ""
            told.append(f"{name}{digits(average)} GB/s")
        told[FEW:] = [sign.more] * (len(told) > FEW)
        parts += [Text(), Text(f"Average busbw: {', '.join(told)}", style=colours.QUIET)]
    host = (str(report.environment.get(name, "")) for name in ("host", "processor"))
    took = [duration(report.elapsed_s), *filter(None, host)]
    took += [f"{name} {version}" for name, version in report.versions.items()]
    return Group(*parts, Text(f" {sign.dot} ".join(took), style=colours.QUIET))


def _series(series: Series, console: Console) -> Iterator[RenderableType]:
    """Its heading, its rows, and why there are none or no more."""
    sign, spec = signs(console), series.spec
    yield heading(f" {sign.dot} ".join(filter(None, traits(spec).values())))
    if spec.refused:
        why = spec.refused.rstrip(".")
        yield Text(f"{sign.none} Not measured: {why}.", style=colours.QUIET)
    if series.rows:
        drawn, left_out = _rows_table(series.rows, console)
        yield drawn
        notes = []
        if spec.dtype:
            factor = "" if series.busbw_formula == "1" else f"{series.busbw_formula} × "
            notes.append(f"algbw is S / median, busbw {factor}algbw; S is {series.payload_is}")
        if series.clock:
            timed_by = "the host's clock" if series.clock == HOST else series.clock
            notes.append(f"timed by {timed_by}" if notes else f"Timed by {timed_by}")
        if not all(row.steady for row in series.rows):
            notes.append(f"{WIDE} wider than asked for")
        if left_out:
            notes.append(f"--format json has {', '.join(left_out)} too")
        yield Text("; ".join(notes) + ".", style=colours.QUIET)
    if series.error:
        yield Text(f"{sign.wrong} {series.error}", style=colours.WRONG)


@dataclass(frozen=True, slots=True)
class Figure:
    """A column.

    Attributes:
        goes: the column with the highest number goes first where there is no room; 0 stays.
        told: whether a row has something to tell in it.
    """

    name: str
    cell: Callable[[Row, Signs], Cell]
    goes: int = 0
    told: Callable[[Row], bool] = lambda _: True
    right: bool = True


def _rows_table(rows: Sequence[Row], console: Console) -> tuple[RenderableType, list[str]]:
    """The rows as a table, or on narrow terminals as a list; and the columns left out."""
    sign = signs(console)
    told = [figure for figure in FIGURES if any(map(figure.told, rows))]
    shown = list(told)
    while True:
        drawn = _grid(shown, rows, sign).table()
        goes = max(shown, key=lambda figure: figure.goes)
        if widest(console, drawn) <= console.width or not goes.goes:
            break
        shown.remove(goes)
    if widest(console, drawn) > console.width:
        shown = [figure for figure in told if figure.goes <= LISTED]
        return _grid(shown, rows, sign, " ").lines(), _names_but(told, shown)
    return drawn, _names_but(told, shown)


def _names_but(told: Sequence[Figure], shown: Sequence[Figure]) -> list[str]:
    return [
        figure.name.split("\nGB/s")[0].replace("\n", " ") for figure in told if figure not in shown
    ]


def _grid(shown: Sequence[Figure], rows: Sequence[Row], sign: Signs, line: str = "\n") -> Grid:
    names = (figure.name.replace("±", _half(sign)).replace("\n", line) for figure in shown)
    columns = [Column(name, right=f.right) for name, f in zip(names, shown, strict=True)]
    return Grid(columns, [[figure.cell(row, sign) for figure in shown] for row in rows])


def _half(sign: Signs) -> str:
    return "+-" if sign == ASCII_SIGNS else "±"


def _interval(row: Row, sign: Signs) -> Text:
    """Half the interval's width, marked where it is wider than was asked for."""
    if row.spread_share is None:
        return Text(sign.none, style=colours.QUIET)
    width = plus_minus(row.spread_share, _half(sign))
    return Text(f"{width} ") if row.steady else Text(f"{width}{WIDE}", style=UNSURE)


def _limit_share(row: Row, sign: Signs) -> Cell:
    share = row.judgement.limit_share if row.judgement else None
    return Text(sign.none, style=colours.QUIET) if share is None else percent(share)


def _wrong(row: Row, sign: Signs) -> Cell:
    if row.wrong:
        return Text(f"{sign.wrong} {row.wrong:,}", style=colours.WRONG)
    return "0" if row.checked else Text(sign.none, style=colours.QUIET)


def _verdict(row: Row, _: Signs) -> Text:
    verdict = _verdict_of(row)
    known = "" if verdict is Verdict.UNKNOWN else verdict.value
    return Text(known, style="" if verdict.is_normal else UNSURE)


def _moves(row: Row) -> bool:
    return row.size_bytes > 0


FIGURES: Sequence[Figure] = (
    Figure("Size", lambda row, _: Text(exact_size(row.size_bytes), style="bold")),
    Figure("Median", lambda row, _: duration(row.median_s)),
    Figure("±", _interval),
    Figure("min", lambda row, _: duration(row.min_s), goes=9),
    Figure("p10", lambda row, _: duration(row.p10_s), goes=7),
    Figure("p90", lambda row, _: duration(row.p90_s), goes=6),
    Figure("p99", lambda row, _: duration(row.p99_s), goes=4),
    Figure("max", lambda row, _: duration(row.max_s), goes=8),
    Figure("algbw\nGB/s", lambda r, _: digits(r.algbw_bytes_per_s / 1e9), goes=5, told=_moves),
    Figure("busbw\nGB/s", lambda r, _: digits(r.busbw_bytes_per_s / 1e9), told=_moves),
    Figure("of\nlimit", _limit_share, 2, lambda r: bool(r.judgement and r.judgement.limit_share)),
    Figure(
        "Hidden",
        lambda row, sign: percent(row.overlap.hidden_share) if row.overlap else sign.none,
        goes=1,
        told=lambda row: bool(row.overlap),
    ),
    Figure("Wrong", _wrong),
    Figure("Verdict", _verdict, 3, lambda row: bool(_verdict(row, ASCII_SIGNS)), right=False),
)

# ----------------------------------------------------------------------------------- side by side


def _side_by_side(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """A row a size, a column a series, the fastest of each op marked; several tables if needed."""
    sign = signs(console)
    counts = Counter(row.size_bytes for row in report.rows)
    sizes = sorted(size for size, count in counts.items() if count > 1)
    series = [s for s in report.measured if any(row.size_bytes in sizes for row in s.rows)]
    if not sizes:
        return
    yield Text()
    yield heading("Side by side: median, and busbw in GB/s")
    best = "*" if sign == ASCII_SIGNS else "★"
    names = dict(zip(map(id, report.series), map("\n".join, labels(report.series)), strict=True))

    def draw(shown: Sequence[Series]) -> Table:
        made = frame()
        made.add_column("Size", justify="right", no_wrap=True, style="bold")
        for each in shown:
            made.add_column(names[id(each)], justify="right", no_wrap=True)
        for size in sizes:
            rows = [_at(each, size) for each in shown]
            if any(rows):
                cells = map(cell, shown, rows)
                made.add_row(exact_size(size), *cells)
        return made

    def cell(own: Series, row: Row | None) -> Text:
        if row is None:
            return Text(sign.none, style=colours.QUIET)
        text = f"{duration(row.median_s)} {digits(row.busbw_bytes_per_s / 1e9):>6}"
        same = [s for s in series if s.spec.op == own.spec.op and s is not own]
        others = [found for each in same if (found := _at(each, row.size_bytes))]
        if not others:
            return Text(text)
        if any(_is_faster(other, row) for other in others):
            return Text(f"  {text}")
        return Text(f"{best} ", style=colours.RIGHT) + Text(text, style="bold")

    chunk: list[Series] = []
    for each in series:
        if chunk and widest(console, draw([*chunk, each])) > console.width:
            yield draw(chunk)
            chunk = []
        chunk.append(each)
    yield draw(chunk)
    if len({each.spec.op for each in series}) < len(series):
        text = f"{best} fastest of its op; several where their intervals meet: any of them may be."
        yield Text(text, style=colours.QUIET)


def _at(series: Series, size: int) -> Row | None:
    return next((row for row in series.rows if row.size_bytes == size), None)


def _is_faster(one: Row, other: Row) -> bool:
    """Its interval ends before the other's begins; without intervals, its median is less."""
    if one.interval_s is None or other.interval_s is None:
        return one.median_s < other.median_s
    return one.interval_s[1] < other.interval_s[0]


# -------------------------------------------------------------------------------------- the reasons


def _titled(
    title: str, lines: Iterable[RenderableType], console: Console
) -> Iterator[RenderableType]:
    """A heading and its lines with a dot before each; nothing where there are none."""
    for place, line in enumerate(lines):
        if not place:
            yield Text()
            yield heading(title)
        hanging = Table.grid(padding=(0, 1))
        hanging.add_column(no_wrap=True)
        hanging.add_column(overflow="fold")
        dot = "-" if signs(console) == ASCII_SIGNS else "•"
        hanging.add_row(Text(dot, style=colours.QUIET), line)
        yield hanging


def _verdict_of(row: Row) -> Verdict:
    return row.judgement.verdict if row.judgement else Verdict.UNKNOWN


def _verdicts(report: BenchReport) -> Iterator[Text]:
    """A line for each run of sizes with one verdict; unsteady rows get no advice.

    Series of one backend with the same runs share a line. The reason is that of the last size.
    """
    names, hints = names_of(report), set[str]()
    found: dict[tuple[Verdict, str, int, int], dict[str, list[Row]]] = {}
    for series in report.series:
        for verdict, run in itertools.groupby(series.rows, _verdict_of):
            rows = list(run)
            if verdict is not Verdict.UNKNOWN:
                span = rows[0].size_bytes, rows[-1].size_bytes
                key = (verdict, series.spec.backend, *span)
                found.setdefault(key, {})[names[id(series)]] = rows
    for (verdict, *_), by_name in found.items():
        rows = min(by_name.values(), key=lambda each: each[-1].busbw_bytes_per_s)
        judgement = rows[-1].judgement or Judgement(verdict, "")
        line = Text(f"{where(by_name, rows, report)}: ", style="bold")
        line.append(verdict.value, style=colours.RIGHT if verdict.is_normal else UNSURE)
        at = f"At {short_size(rows[-1].size_bytes)}: " if len(rows) > 1 else ""
        line.append(f". {at}{judgement.why}", style="not bold")
        if judgement.hint and judgement.hint not in hints and all(row.steady for row in rows):
            hints.add(judgement.hint)
            line.append(f" {judgement.hint}", style="not bold")
        yield line


def _overlaps(report: BenchReport) -> Iterator[Text]:
    """How much of the communication was hidden, of each series the best size, with its times."""
    names = names_of(report)
    for series in report.series:
        rows = [(row, row.overlap) for row in series.rows if row.overlap]
        if rows:
            row, lap = max(rows, key=lambda each: float(each[1].hidden_share))
            lead = f"{names[id(series)]}: " if len(report.series) > 1 else ""
            yield Text(
                f"{lead}at best {percent(lap.hidden_share)} of the communication is hidden, at "
                f"{short_size(row.size_bytes)}: alone {duration(lap.alone_s)}, computing "
                f"{duration(lap.compute_s)}, together {duration(lap.together_s)}."
            )


def _skew(series: Series, report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """Which rank comes late, and by how much."""
    if not series.skew:
        return
    sign = signs(console)
    names = ("Rank", "Comes late by", "p99", "Last in", "Op took", "Waited")
    grid = Grid([Column(name, right=True) for name in names])
    for each in select(series.skew, None, lambda one: one.is_late):
        if isinstance(each, int):
            grid.rows.append([sign.more])
            continue
        style = colours.WRONG if each.is_late else ""
        lead = Text(f"{sign.arrow} " if each.is_late else "", style=style)
        grid.rows.append(
            [
                lead + Text(str(each.rank), style=colours.of_rank(each.rank)),
                Text(duration(each.late_s), style=style),
                duration(each.late_p99_s),
                percent(each.last_share),
                duration(each.took_s),
                duration(each.waited_s),
            ]
        )
    yield Text()
    yield heading("Who comes late" + f": {names_of(report)[id(series)]}" * (len(report.series) > 1))
    yield fitting(console, lambda _: grid)
    late = [
        f"rank {each.rank} comes {duration(each.late_s)} late and is the last in "
        f"{percent(each.last_share)} of the iterations"
        for each in series.skew
        if each.is_late
    ]
    if late:
        yield Text(f"{sign.arrow} The others wait: {'; '.join(late)}.", style=colours.WRONG)
    else:
        yield Text(f"{sign.right} No rank comes late often and by much.", style=colours.RIGHT)


# --------------------------------------------------------------------------------- how it was done


def _facts(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """How each backend was measured, and what it is held against; what all share is told once."""
    how = partial(_how, profile=report.spec.profile_harness)
    facts: tuple[tuple[str, Callable[[Setup], Iterator[str]]], ...] = (
        ("Measured", how),
        ("Limits", _limits),
    )
    for title, tell in facts:
        told: dict[str, list[str]] = {}
        for setup in report.setups:
            for text in tell(setup):
                told.setdefault(text, []).append(setup.backend)
        lines = (
            ("" if len(names) == len(report.setups) else f"{', '.join(names)}: ") + text
            for text, names in told.items()
        )
        yield from _titled(title, (Text(line, style=colours.QUIET) for line in lines), console)


def _how(setup: Setup, *, profile: bool) -> Iterator[str]:
    if setup.launches:
        purpose = ", the first to verify and to calibrate" if setup.launches > 1 else ""
        ranks = plural(setup.world_size, "rank")
        launches = "1 launch" if setup.launches == 1 else f"{setup.launches:,} launches"
        yield f"in {launches} of {ranks}{purpose}"
    start, harness = setup.alignment, setup.harness
    if start is not None:
        page = start.way is Start.PAGE
        way = "through shared memory" if page else "through the group's barrier"
        end = "; their clocks can't be compared"
        if start.spread_s is not None:
            p99 = "" if start.spread_p99_s is None else f", p99 {duration(start.spread_p99_s)}"
            end = f"; the last one starts {duration(start.spread_s)} after the first{p99}"
        yield f"ranks start each iteration together {way}: {duration(start.cost_s)}, not timed{end}"
    if harness is not None:
        text = f"the loop adds {duration(harness.inside_s)} to each time"
        if profile:
            count = f"{harness.iterations:,} iterations with an empty op"
            text += f", and takes {duration(harness.outside_s)} beside it ({count})"
        yield text


def _limits(setup: Setup) -> Iterator[str]:
    """A line a transport: one alone, then all at once; the bound is named."""
    for transport, group in itertools.groupby(setup.limits, lambda limit: limit.transport):
        limits = list(group)
        alone = sorted(
            (limit for limit in limits if not limit.at_once),
            key=lambda limit: limit.bandwidth_bytes_per_s,
        )
        parts = []
        if alone:
            slowest, fastest = alone[0], alone[-1]
            who = "one rank alone"
            if len(slowest.ranks) == 2:
                who = f"rank {slowest.ranks[0]} to {slowest.ranks[1]}"
            speed = rate(slowest.bandwidth_bytes_per_s)
            if len(alone) > 1:
                speed += f" to {rate(fastest.bandwidth_bytes_per_s)} over {len(alone)} pairs alone"
                who = f"the slowest {who}"
            delay = "" if slowest.latency_s is None else f", 8 B in {duration(slowest.latency_s)}"
            parts.append(f"{speed}, {who}{delay}")
        for limit in limits:
            if limit.at_once:
                each = "both ranks" if len(limit.ranks) == 2 else f"all {len(limit.ranks):,} ranks"
                parts.append(f"{rate(limit.bandwidth_bytes_per_s)} each with {each} at once")
        bound = setup.bound is not None and setup.bound.transport is transport
        end = "; busbw is held against it" if bound else ""
        size = short_size(limits[0].size_bytes)
        yield f"{transport.value}: {'; '.join(parts)} ({size} at a time{end})"


def bounds(report: BenchReport) -> list[tuple[str, float]]:
    """The limits that busbw is held against, in words and in bytes a second, for the plot."""
    found: dict[Limit, list[str]] = {}
    used = {series.spec.backend for series in report.measured}
    for setup in report.setups:
        if setup.backend in used and setup.bound is not None:
            found.setdefault(setup.bound, []).append(setup.backend)
    return [
        (
            f"{bound.transport.value} {rate(bound.bandwidth_bytes_per_s)}"
            + ("" if len(names) == len(used) else f" ({', '.join(names)})"),
            bound.bandwidth_bytes_per_s,
        )
        for bound, names in found.items()
    ]


# -------------------------------------------------------------------------------------------- CSV

_OF_SERIES = (
    *("backend", "device", "op", "form", "in_place", "async_op", "world_size", "group_size"),
    *("dtype", "reduce_op", "root", "pattern", "src", "dst"),
)
_OF_ROW = (
    *("size_bytes", "elements", "iterations", "median_s", "p10_s", "p90_s", "p99_s", "min_s"),
    *("max_s", "steady", "algbw_bytes_per_s", "busbw_bytes_per_s", "checked", "wrong"),
)
_ENVIRONMENT = ("host", "processor", "torch")


def to_csv(report: BenchReport) -> str:
    """A line a size, in the document's names (RFC 4180). What does not apply is empty."""
    memory = io.StringIO(newline="")
    more = ("interval_low_s", "interval_high_s", "limit_share", "verdict", "hidden_share")
    writer = csv.DictWriter(memory, (*_OF_SERIES, *_OF_ROW, *more, *_ENVIRONMENT))
    writer.writeheader()
    facts = {**report.environment, **report.versions}
    for series in report.series:
        of_series = encode(series.spec)
        for row in series.rows:
            of_row = encode(replace(row, times_s=()))
            low, high = row.interval_s or (None, None)
            judgement = of_row["judgement"] or {}
            values = {
                **{name: of_series[name] for name in _OF_SERIES},
                **{name: of_row[name] for name in _OF_ROW},
                "iterations": row.iterations,
                "interval_low_s": low,
                "interval_high_s": high,
                "limit_share": judgement.get("limit_share"),
                "verdict": judgement.get("verdict"),
                "hidden_share": (of_row["overlap"] or {}).get("hidden_share"),
                **{name: facts.get(name) for name in _ENVIRONMENT},
            }
            writer.writerow(
                {k: str(v).lower() if isinstance(v, bool) else v for k, v in values.items()}
            )
    return memory.getvalue()


FILES = {".csv": to_csv}
