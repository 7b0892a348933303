"""Several series beside each other: a row a size, a column a series, the best of each marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_marks import marks
from distdemo.bench.view_names import label_parts, measured
from distdemo.bench.view_numbers import rate, size_text
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import frame, heading
from distdemo.view.grid import NARROW, widest
from distdemo.view.numbers import duration


def beside(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """The comparison, over as many tables as it takes; nothing where no sizes are the same.

    On a narrow terminal there is none: the series' own lists say it all.
    """
    series = measured(report)
    sizes = _common(series)
    if len(series) < 2 or not sizes or console.width < NARROW:
        return
    yield Text()
    yield heading("Side by side: median, and busbw in GB/s")
    series = [each for each in series if any(row.size in sizes for row in each.rows)]
    parts = zip(map(id, report.series), label_parts(report.series), strict=True)
    names = {key: "\n".join(words) for key, words in parts}
    for chunk in _chunks(series, sizes, names, console):
        yield _table(chunk, series, sizes, names, signs(console))
    if any(_contest(each, series) for each in series):
        best = marks(signs(console)).best
        text = f"{best} fastest of its op; several where their intervals meet: any of them may be."
        yield Text(text, style=colours.QUIET)


def _common(series: Sequence[Series]) -> list[int]:
    """The sizes that at least two series have."""
    counts = Counter(row.size for each in series for row in each.rows)
    return sorted(size for size, count in counts.items() if count > 1)


def _chunks(
    series: Sequence[Series], sizes: Sequence[int], names: dict[int, str], console: Console
) -> Iterator[list[Series]]:
    """As many series as fit beside each other, one at least."""
    chunk: list[Series] = []
    for each in series:
        table = _table([*chunk, each], series, sizes, names, signs(console))
        if chunk and widest(console, table) > console.width:
            yield chunk
            chunk = []
        chunk.append(each)
    yield chunk


def _table(
    shown: Sequence[Series],
    series: Sequence[Series],
    sizes: Sequence[int],
    names: dict[int, str],
    sign: Signs,
) -> Table:
    table = frame()
    table.add_column("Size", justify="right", no_wrap=True, style="bold")
    for each in shown:
        table.add_column(names[id(each)], justify="right", no_wrap=True)
    own = {row.size for each in shown for row in each.rows}
    for size in filter(own.__contains__, sizes):
        table.add_row(size_text(size), *(_cell(each, series, size, sign) for each in shown))
    return table


def _cell(own: Series, series: Sequence[Series], size: int, sign: Signs) -> Text:
    row = _at(own, size)
    if row is None:
        return Text(sign.none, style=colours.QUIET)
    others = [found for each in _contest(own, series) if (found := _at(each, size))]
    text = Text(f"{duration(row.median)} {rate(row.busbw):>6}")
    if not others:
        return text
    best = _is_best(row, others)
    lead = f"{marks(sign).best} " if best else "  "
    return Text(lead, style=colours.RIGHT) + Text(text.plain, style="bold" if best else "")


def _contest(own: Series, series: Sequence[Series]) -> list[Series]:
    """The others of the same op."""
    same = [each for each in series if each.spec.command == own.spec.command]
    return [each for each in same if each is not own]


def _is_best(row: Row, others: Sequence[Row]) -> bool:
    """Nobody was surely faster: it is the fastest, or may be."""
    return not any(_faster(other, row) for other in others)


def _faster(one: Row, other: Row) -> bool:
    """Its interval ends before the other's begins; without intervals, its median is less."""
    if one.interval is None or other.interval is None:
        return one.median < other.median
    return one.interval[1] < other.interval[0]


def _at(series: Series, size: int) -> Row | None:
    return next((row for row in series.rows if row.size == size), None)
