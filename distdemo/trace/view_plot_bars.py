"""One size: a bar an algorithm, and under it a hollow one of what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from distdemo.trace.contending import CompareReport, Contender
from distdemo.trace.view_plot_looks import QUIET, Look, Measure, looks, measure, row_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THICK, THIN = 0.42, 0.26  # of a row's height


def bars(axes: Axes, report: CompareReport) -> list[Patch]:
    """Draw them, the least at the top.

    Args:
        axes: empty.
        report: of one size.

    Returns:
        What the legend shows.
    """
    shown, arena = measure(report), report.arenas[0]
    found = [(look, row_of(arena, look.label, report)) for look in looks(report).values()]
    pairs = [(look, row) for look, row in found if row is not None]
    pairs.sort(key=lambda pair: _value(pair[1], shown), reverse=True)
    for place, (look, row) in enumerate(pairs):
        _bar(axes, place, look, row, shown)
    axes.set_yticks(range(len(pairs)), [look.label for look, _ in pairs])
    axes.set_xlabel(shown.title)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown.text(value)))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    _, most = axes.get_xlim()
    axes.set_xlim(0, most * 1.12)  # room for the words at the end of the longest
    return _legend([row for _, row in pairs], shown)


def _value(row: Contender, shown: Measure) -> float:
    return shown.measured(row) or shown.expected(row) or 0.0


def _bar(axes: Axes, place: int, look: Look, row: Contender, shown: Measure) -> None:
    """Both bars with their values; a row that was not run says so."""
    measured, expected = shown.measured(row), shown.expected(row)
    alone = measured is None and not row.refused
    if measured is not None:
        axes.barh(place + 0.14, measured, THICK, color=look.colour, zorder=3)
        _interval(axes, place + 0.14, row)
    if expected is not None:
        at, thick = (place, THICK) if alone else (place - 0.24, THIN)
        axes.barh(
            at,
            expected,
            thick,
            facecolor="none",
            edgecolor=look.colour,
            linestyle="--",
            linewidth=1.2,
            zorder=3,
        )
        _words(axes, at, expected, shown.text(expected), small=not alone)
    if measured is not None and row.timing is not None:
        end = max(measured, row.timing.high)
        _words(axes, place + 0.14, end, shown.text(measured))
    elif row.refused:
        _words(axes, place + 0.14, 0, "not run")


def _interval(axes: Axes, at: float, row: Contender) -> None:
    """From the low edge of the median's interval to the high one."""
    if row.timing is not None:
        axes.plot([row.timing.low, row.timing.high], [at, at], color=QUIET, linewidth=1.4, zorder=4)


def _words(axes: Axes, at: float, value: float, text: str, *, small: bool = False) -> None:
    axes.annotate(
        text,
        xy=(value, at),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5 if small else 9,
        color=QUIET if small else "#000000",
    )


def _legend(rows: list[Contender], shown: Measure) -> list[Patch]:
    hollow = Patch(facecolor="none", edgecolor=QUIET, linestyle="--", label=shown.words)
    if not any(shown.measured(row) for row in rows):
        return [hollow]
    return [Patch(color=QUIET, label="measured, median and its interval"), hollow]
