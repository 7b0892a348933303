"""A measurement while it runs, on standard error: a bar with the time left, and the newest rows.

Drawn by the caller's own calls, not from a thread: ranks are forked from this process, and a
process with threads can't be forked safely.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import monotonic
from types import TracebackType
from typing import final

from rich import live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from distdemo.measuring import BenchReport, Course, Row
from distdemo.render import colours
from distdemo.render.bench.columns import interval_cell
from distdemo.render.bench.names import labels
from distdemo.render.bench.numbers import percent, rate, size_text
from distdemo.render.console import Signs, messages, signs
from distdemo.render.grid import NARROW, widest
from distdemo.render.numbers import duration
from distdemo.render.progress import INTERVAL, visible

BAR = 20  # columns
AROUND = 3  # lines beside the rows: the bar, the table's head, and the one that the cursor is in
COLUMNS = ("Size", "Median", "±", "busbw GB/s", "Wrong", "Iterations")
ROOMS = (len(COLUMNS), 5, 4, 2)  # columns that are shown: as many as there is room for


@final
class Live:
    """Shows what is measured so far; wiped at the end.

    Does nothing where nobody would see it: standard error is no terminal, or is a dumb one. A
    rank that was forked meanwhile draws nothing and wipes nothing.

    Args:
        enabled: whether the user wants to see it.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._owner = os.getpid()
        self._drawn = -INTERVAL
        self._live = _drawing() if enabled and visible() else None

    def __enter__(self) -> Live:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None and os.getpid() == self._owner:
            self._live.stop()

    def show(self, report: BenchReport, course: Course) -> None:
        """Draw, unless that was done a moment ago. Cheap enough to be called at every turn.

        The bar moves only with this: call it while waiting, too.

        Args:
            report: what is measured so far.
            course: how far that is.
        """
        moment = monotonic()
        if self._live is None or moment - self._drawn < INTERVAL or os.getpid() != self._owner:
            return
        self._drawn = moment
        self._live.update(live_view(report, course, self._live.console), refresh=True)


def _drawing() -> live.Live:
    return live.Live(
        console=messages(),
        auto_refresh=False,  # True starts a thread
        transient=True,
        redirect_stdout=False,  # ranks would inherit the replaced streams
        redirect_stderr=False,
        vertical_overflow="crop",
    )


def live_view(report: BenchReport, course: Course, console: Console) -> RenderableType:
    """The bar, and under it as many of the newest rows as the terminal is high enough for."""
    parts: list[RenderableType] = [_bar(course, console)]
    names = labels(report.series)
    several = len(report.series) > 1
    rows = [
        (name if several else "", row)
        for name, series in zip(names, report.series, strict=True)
        for row in series.rows
    ]
    room = console.height - AROUND
    if rows and room > 0:
        parts.append(_fitting(rows[-room:], console))
    return Group(*parts)


def _bar(course: Course, console: Console) -> Table:
    """Bar, share, time left, and in what room there is, what is being done."""
    done = min(1.0, max(0.0, course.done))
    left = "" if course.left is None else f"{_clock(course.left)} left"
    cells: list[RenderableType] = [Text(percent(done)), Text(left)]
    if console.width >= NARROW:
        cells.insert(0, ProgressBar(total=1.0, completed=done, width=BAR))
    line = Table.grid(padding=(0, 1), expand=True)
    for _ in cells:
        line.add_column(no_wrap=True)
    line.add_column(ratio=1, no_wrap=True, overflow="crop")
    line.add_row(*cells, Text(course.now, style=colours.QUIET))
    return line


def _clock(seconds: float) -> str:
    """Whole seconds; of many, minutes too."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


def _fitting(rows: Sequence[tuple[str, Row]], console: Console) -> Table:
    """With as many columns as there is room for; a terminal that is narrower still cuts it."""
    for count in ROOMS:
        table = _table(rows, count, signs(console))
        if widest(console, table) <= console.width:
            break
    return table


def _table(rows: Sequence[tuple[str, Row]], count: int, sign: Signs) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    named = any(name for name, _ in rows)
    if named:
        table.add_column("Series", no_wrap=True)
    for name in COLUMNS[:count]:
        plain = name if sign.right == "✓" else name.replace("±", "+-")
        table.add_column(plain, justify="right", no_wrap=True)
    for name, row in rows:
        table.add_row(*[name] * named, *list(_cells(row, sign))[:count])
    return table


def _cells(row: Row, sign: Signs) -> Iterator[Text]:
    yield Text(size_text(row.size), style="bold")
    yield Text(duration(row.median))
    yield interval_cell(row, sign)
    yield Text(rate(row.busbw))
    yield Text(f"{row.wrong:,}", style=colours.WRONG if row.wrong else "")
    yield Text(f"{row.iterations:,}")
