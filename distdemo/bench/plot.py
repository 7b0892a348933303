"""Plot of time and bandwidth against size, with the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from distdemo.bench.answer import headline, series_names
from distdemo.measure.records import BenchReport, Limit, Row
from distdemo.view.format import duration, rate, short_size
from distdemo.view.plot import Axis, Line, Panel, lines

LIMIT_HUE = 7


def draw(report: BenchReport, file: Path | None) -> bytes:
    """Return the plot of a report with rows.

    Args:
        report: Report to draw.
        file: File that it will be written to; its suffix determines the format.
    """
    size = Axis("Size", short_size)
    times = _series(report, lambda _, seconds: seconds)
    rates = _series(report, lambda row, seconds: row.busbw_factor * row.size_bytes / seconds)
    panels = [
        Panel(list(times), size, Axis("Time, median", duration)),
        Panel([*rates, *_limits(report)], size, Axis("Bus bandwidth", rate)),
    ]
    footer = [str(report.environment.get(name, "")) for name in ("host", "processor")]
    footer += [f"{name} {version}" for name, version in report.versions.items()]
    notes = (" · ".join(filter(None, footer)), "lines: medians; shaded: p10 to p90")
    return lines(panels, headline(report), notes, file)


def _series(report: BenchReport, figure: Callable[[Row, float], float]) -> Iterator[Line]:
    """Yield one line per series, with a figure of each row computed from its times."""
    names = series_names(report.series)
    for hue, series in enumerate(report.series):
        # Ops without a size, such as barrier, don't fit on an axis of sizes.
        rows = [row for row in series.rows if row.size_bytes and figure(row, row.median_s) > 0]
        points = [(row.size_bytes, figure(row, row.median_s)) for row in rows]
        band = [(figure(row, row.p10_s), figure(row, row.p90_s)) for row in rows]
        if rows:
            yield Line(names[series.spec], points, hue, band=band)


def _limits(report: BenchReport) -> Iterator[Line]:
    """Yield each limit that busbw is compared with, as a horizontal line over all sizes."""
    bounds: dict[Limit, list[str]] = {}
    for setup in report.setups:
        if setup.bound is not None:
            bounds.setdefault(setup.bound, []).append(setup.backend)
    sizes = [row.size_bytes for row in report.rows if row.size_bytes]
    for bound, names in bounds.items() if sizes else ():
        bandwidth = bound.bandwidth_bytes_per_s
        name = f"{bound.transport.value} {rate(bandwidth)} ({', '.join(names)})"
        yield Line(name, [(min(sizes), bandwidth), (max(sizes), bandwidth)], LIMIT_HUE, "dashed")
