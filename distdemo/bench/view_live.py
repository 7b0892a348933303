"""A measurement while it runs, on standard error: a bar with the time left, and the newest rows.

It shares the processor with the ranks that are measured: it is drawn seldom, in few lines whose
widths need no measuring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from rich import live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from distdemo.bench.old_records import BenchReport, Course, Row
from distdemo.bench.view_marks import marks
from distdemo.bench.view_names import labels
from distdemo.bench.view_numbers import half_width, percent, rate, size_text
from distdemo.view import colours
from distdemo.view.console import Signs, messages, signs
from distdemo.view.grid import NARROW
from distdemo.view.numbers import duration
from distdemo.view.redrawn import Redrawn, visible

INTERVAL = 0.5  # seconds between two drawings
BAR = 20  # columns
AROUND = 3  # lines beside the rows: the bar, the table's head, and the one that the cursor is in
NEWEST = 12  # rows that are shown at most
COLUMNS = (
    ("Size", 9),
    ("Median", 8),
    ("±", 7),
    ("busbw GB/s", 10),
    ("Wrong", 5),
    ("Iterations", 10),
)
"""Their heads, and characters that they take."""
BETWEEN = 2  # blanks between two columns
Named = tuple[str, Row]
"""A row, and the name of its series; empty where there is but one."""


@final
class Live(Redrawn):
    """Shows what is measured so far; wiped at the end.

    Does nothing where nobody would see it: standard error is no terminal, or is a dumb one. A
    rank that was forked meanwhile draws nothing and wipes nothing.

    Args:
        enabled: whether the user wants to see it.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._live = _drawing() if enabled and visible() else None
        super().__init__(self._live, INTERVAL)
        self._rows: dict[tuple[int, int], Named] = {}
        self._names: list[str] = []

    def show(self, report: BenchReport, course: Course) -> None:
        """Draw, unless that was done a moment ago. Cheap enough to be called at every turn.

        The bar moves only with this: call it while waiting, too.

        Args:
            report: what is measured so far; always of the same measurement.
            course: how far that is.
        """
        if self._live is None or not self.is_due():
            return
        rows = self._newest(report)
        self._live.update(live_view(rows, course, self._live.console), refresh=True)

    def _newest(self, report: BenchReport) -> list[Named]:
        """All rows, those that changed last at the end."""
        self._names = self._names or labels(report.series)
        for number, series in enumerate(report.series):
            for row in series.rows:
                place = number, row.size
                before = self._rows.get(place)
                if before is None or before[1] is not row:
                    self._rows.pop(place, None)
                    self._rows[place] = self._names[number] * (len(report.series) > 1), row
        return list(self._rows.values())


def _drawing() -> live.Live:
    return live.Live(
        console=messages(),
        auto_refresh=False,  # True starts a thread
        transient=True,
        redirect_stdout=False,  # ranks would inherit the replaced streams
        redirect_stderr=False,
        vertical_overflow="crop",
    )


def live_view(rows: Sequence[Named], course: Course, console: Console) -> RenderableType:
    """The bar, and under it as many of the newest rows as the terminal is high enough for.

    Args:
        rows: the newest at the end.
        course: how far it is.
        console: that it will be drawn on.
    """
    room = min(NEWEST, console.height - AROUND)
    if not rows or room < 1:
        return _bar(course, console)
    return Group(_bar(course, console), *_lines(rows[-room:], console))


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


def _lines(rows: Sequence[Named], console: Console) -> Iterator[Text]:
    """The head and a line a row, with as many columns as there is room for, two at least."""
    sign = signs(console)
    lead = max(len(name) for name, _ in rows)
    lead += BETWEEN if lead else 0
    count, taken = 0, lead
    for _, width in COLUMNS:
        taken += width + BETWEEN
        count += taken - BETWEEN <= console.width
    count = max(2, count)
    heads = (marks(sign).half if head == "±" else head for head, _ in COLUMNS)
    yield _line("Series" if lead else "", lead, list(heads)[:count], "bold")
    for name, row in rows:
        yield _line(name, lead, list(_cells(row, sign))[:count], colours.WRONG if row.wrong else "")


def _line(name: str, lead: int, cells: Sequence[str], style: str) -> Text:
    widths = (width for _, width in COLUMNS)
    padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=False))
    text = (" " * BETWEEN).join(padded)
    return Text(name.ljust(lead) + text, style=style, no_wrap=True, overflow="crop")


def _cells(row: Row, sign: Signs) -> Iterator[str]:
    mark = marks(sign)
    width = half_width(row, mark.half)
    yield size_text(row.size)
    yield duration(row.median)
    yield (width + " " * row.steady + mark.unsteady * (not row.steady)) if width else sign.none
    yield rate(row.busbw)
    yield f"{row.wrong:,}"
    yield f"{row.iterations:,}"
