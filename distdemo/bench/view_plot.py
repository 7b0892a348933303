"""Time and bandwidth against size, drawn with matplotlib: a line a series, and the limits."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from distdemo.bench.old_records import CONFIDENCE, BenchReport
from distdemo.bench.view_names import headline, label_parts, with_sizes
from distdemo.bench.view_page import page
from distdemo.bench.view_panels import Curve, bandwidth_panel, time_panel
from distdemo.view.plot import COLOURS, LINES, MARKS, SETTINGS, entitle, saved

SIZE = (10.0, 5.2)  # inches
LINE = 0.2  # inches that a further line of the legend takes
INTERVAL = f"the median's {CONFIDENCE:.0%} interval"
PLACEMENTS = {"in place", "out of place"}
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_ADDED = {"Date": None, "Creator": None, "Format": None, "Type": None}


def plot(report: BenchReport, kind: str) -> bytes:
    """The picture of a measurement.

    Args:
        report: of a measurement; without any row the panels are empty.
        kind: ``png``, ``svg`` or ``html``: one page with the picture, all numbers and what they
            depend on, which needs nothing else.
    """
    with mpl.rc_context(SETTINGS):
        figure = _figure(with_sizes(report))
        if kind != "html":
            return saved(figure, kind)
        return page(report, _inline(figure)).encode()


def _figure(report: BenchReport) -> Figure:
    curves = list(_curves(report))
    lines = -(-len(curves) // _columns(curves))
    figure = Figure(figsize=(SIZE[0], SIZE[1] + LINE * (lines - 1)), layout="constrained")
    left, right = figure.subplots(1, 2)
    time_panel(left, curves)
    bandwidth_panel(right, curves, report)
    handles, names = left.get_legend_handles_labels()
    if handles:
        columns = _columns(curves)
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    entitle(figure, headline(report, "·"), _small(report))
    return figure


def _curves(report: BenchReport) -> Sequence[Curve]:
    """A colour and a mark for each op, a line for each backend; hollow marks are in place.

    Where there is but one op, each backend has a colour and a mark of its own.
    """
    found: list[Curve] = []
    looks: dict[tuple[str, ...], int] = {}
    lines: dict[str, int] = {}
    several = len({series.spec.command for series in report.series}) > 1
    for series, words in zip(report.series, label_parts(report.series), strict=True):
        said = {*PLACEMENTS, series.spec.backend} if several else PLACEMENTS
        look = looks.setdefault(tuple(w for w in words if w not in said), len(looks))
        line = lines.setdefault(series.spec.backend, len(lines)) if several else 0
        curve = Curve(
            " ".join(words),
            series.rows,
            COLOURS[look % len(COLOURS)],
            MARKS[look % len(MARKS)],
            LINES[line % len(LINES)],
            hollow=series.spec.in_place,
        )
        found += [curve] if series.rows else []
    return found


def _columns(curves: Sequence[Curve]) -> int:
    """Of the legend: as many as there is room for."""
    longest = max((len(curve.name) for curve in curves), default=1)
    return max(1, min(len(curves) or 1, 130 // (longest + 8)))


def _small(report: BenchReport) -> str:
    """Where it was measured, and with what."""
    about = (str(report.environment.get(name, "")) for name in ("host", "processor"))
    versions = (f"{name} {version}" for name, version in report.versions.items())
    told = " · ".join([*filter(None, about), *versions])
    return f"{told}\nlines: medians; shaded: p10 to p90, darker: {INTERVAL}"


def _inline(figure: Figure) -> str:
    """As an element of a page: without what only a file has, and without the date."""
    memory = io.BytesIO()
    figure.savefig(memory, format="svg", metadata=_ADDED, transparent=True)
    return _PROLOGUE.sub("", memory.getvalue().decode(), count=1)
