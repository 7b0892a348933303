"""Time and bandwidth against size as a small picture in the terminal; log axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_canvas import LABEL, TICKS, Panel, Scale, spaced
from distdemo.bench.view_limits import bounds
from distdemo.bench.view_marks import Marks, marks
from distdemo.bench.view_names import labels, measured, with_sizes
from distdemo.bench.view_numbers import rate_text, short_size
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.numbers import duration

LEAST, MOST = 60, 100  # columns of a terminal that it needs, and that it takes at most
ROWS = 10  # of the field that points lie in
GAP = 2  # columns between the two panels


@dataclass(frozen=True, slots=True)
class Scene:
    """What is drawn.

    Attributes:
        series: those that have rows.
        names: of each.
        limits: of the bandwidth, in words and in bytes a second.
        x: the axis of sizes.
        mark: the signs.
    """

    series: Sequence[Series]
    names: Sequence[str]
    limits: Sequence[tuple[str, float]]
    x: Scale
    mark: Marks


def terminal_plot(report: BenchReport, console: Console) -> RenderableType | None:
    """Both panels beside each other, and the legend; None where it would not say anything.

    That is on a terminal of less than ``LEAST`` columns, with fewer than two sizes, and with more
    series than there are signs to tell them apart by.
    """
    report = with_sizes(report)
    series = measured(report)
    sizes = sorted({row.size for each in series for row in each.rows})
    mark = marks(signs(console))
    if console.width < LEAST or len(sizes) < 2 or len(series) > len(mark.points):
        return None
    columns = (min(console.width, MOST) - GAP) // 2 - LABEL - 1
    x = Scale(sizes[0], sizes[-1], columns)
    named = zip(report.series, labels(report.series), strict=True)
    names = [name for each, name in named if each.rows]
    scene = Scene(series, names, bounds(report), x, mark)
    left = _panel(scene, "Time", lambda row: row.median)
    right = _panel(scene, "busbw", lambda row: row.busbw, scene.limits)
    ticks = spaced([(x.place(size), short_size(size)) for size in sizes], columns)
    lines = zip(_lines(left, ticks, duration), _lines(right, ticks, rate_text), strict=True)
    drawn = [one + Text(" " * GAP) + other for one, other in lines]
    entries = _legend(scene, crowded=left.crowded or right.crowded)
    return Group(Text(), *drawn, *_wrapped(entries, console.width))


def _panel(
    scene: Scene,
    title: str,
    pick: Callable[[Row], float],
    limits: Sequence[tuple[str, float]] = (),
) -> Panel:
    curves = [
        [(float(row.size), pick(row)) for row in each.rows if pick(row) > 0]
        for each in scene.series
    ]
    values = [y for points in curves for _, y in points] + [limit for _, limit in limits]
    scale = Scale(min(values, default=1.0), max(values, default=1.0), ROWS)
    panel = Panel(title, scene.x, scale, scene.mark)
    for _, limit in limits:
        panel.across(limit)
    for place, points in enumerate(curves):
        panel.curve(points, scene.mark.points[place], colours.of_rank(place))
    return panel


def _lines(panel: Panel, ticks: Sequence[str], text: Callable[[float], str]) -> list[Text]:
    """With a label at some rows of the upright axis, the top and the bottom among them."""
    rows = panel.y.cells
    wanted = {0, rows - 1, *range(0, rows - TICKS // 2, TICKS)}
    y_labels = [text(panel.y.value(rows - 1 - row)) if row in wanted else "" for row in range(rows)]
    return panel.lines("", y_labels, ticks)


def _legend(scene: Scene, *, crowded: bool) -> list[Text]:
    """What each sign stands for."""
    mark = scene.mark
    entries = [
        Text(f"{mark.points[place]} {name}", style=colours.of_rank(place))
        for place, name in enumerate(scene.names)
    ]
    entries += [Text(f"{mark.several} several", style="bold")] if crowded else []
    return entries + [
        Text(f"{mark.limit * 2} {text}", style=colours.QUIET) for text, _ in scene.limits
    ]


def _wrapped(entries: Sequence[Text], width: int) -> list[Text]:
    """Two blanks between two entries, and a new line where the next has no room."""
    found = [Text()]
    for entry in entries:
        if found[-1] and len(found[-1]) + 2 + len(entry) > width:
            found.append(Text())
        found[-1] += (Text("  ") if found[-1] else Text()) + entry
    return found
