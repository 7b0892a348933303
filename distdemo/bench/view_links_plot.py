"""Every pair of ranks as two heat maps with their numbers, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from distdemo.bench.linking import LinksReport
from distdemo.bench.view_links_heat import MANY, SLOW, Measure, Shade, measures
from distdemo.bench.view_links_table import slow_ranks
from distdemo.bench.view_numbers import digits, short_size
from distdemo.view.numbers import plural
from distdemo.view.plot import SETTINGS, entitle, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST, MOST, EACH = 4.0, 7.0, 0.44  # inches of a map: at least, at most, and of a rank
BESIDE, OVER = 1.2, 1.5  # inches beside a map, and over and under it
DARK = 0.55  # of the scale, from which letters are white
FRAME = "#0072b2"


def links_plot(report: LinksReport, kind: str) -> bytes:
    """The picture of all pairs.

    Args:
        report: of a measurement; what was not measured is left blank.
        kind: ``png`` or ``svg``.
    """
    ranks = report.spec.world.world_size
    side = min(MOST, max(LEAST, EACH * ranks))
    with mpl.rc_context(SETTINGS | {"axes.grid": False}):
        figure = Figure(figsize=(2 * (side + BESIDE), side + OVER), layout="compressed")
        panels = figure.subplots(1, 2)
        for axes, measure in zip(panels, measures(report.links), strict=True):
            _map(axes, report, measure)
        entitle(figure, _title(report), _small(report))
        return saved(figure, kind)


def _map(axes: Axes, report: LinksReport, measure: Measure) -> None:
    """The colours, their bar, the numbers where there is room for them, and the slow links."""
    ranks = report.spec.world.world_size
    table = [[math.nan] * ranks for _ in range(ranks)]
    for link in report.links:
        value = measure.pick(link)
        table[link.src][link.dst] = value / measure.unit if value > 0 else math.nan
    known = [value for row in table for value in row if not math.isnan(value)]
    shade = Shade.of(known, measure)
    low, high = sorted((shade.best, shade.worst))
    norm = LogNorm(vmin=low, vmax=high)
    colours = mpl.colormaps["YlOrRd_r" if measure.high else "YlOrRd"]
    image = axes.imshow(table, cmap=colours, norm=norm, aspect="equal")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.tick_params(labelsize=8, which="both")
    bar.outline.set_visible(False)
    _frame(axes, measure, ranks)
    if ranks <= MANY:
        _numbers(axes, table, shade, report)
    _slow(axes, report)


def _frame(axes: Axes, measure: Measure, ranks: int) -> None:
    axes.set_title(measure.name, fontsize=11)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(min(ranks, MANY), integer=True, min_n_ticks=1))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(length=0)
    axes.set_facecolor("#f2f2f2")  # where no link is
    for spine in axes.spines.values():
        spine.set_visible(False)


def _numbers(
    axes: Axes, table: Sequence[Sequence[float]], shade: Shade, report: LinksReport
) -> None:
    """White on dark colours, black on light ones; smaller where there are many."""
    slow = {(link.src, link.dst) for link in report.slow}
    points = 10 if len(table) <= 8 else 7
    for src, row in enumerate(table):
        for dst, value in enumerate(row):
            if not math.isnan(value):
                share = math.log(value / shade.best) / math.log(shade.worst / shade.best)
                mark = SLOW if (src, dst) in slow else ""
                axes.text(
                    dst,
                    src,
                    f"{digits(value)}{mark}",
                    ha="center",
                    va="center",
                    fontsize=points,
                    color="white" if share > DARK else "black",
                )


def _slow(axes: Axes, report: LinksReport) -> None:
    """A frame around each."""
    for link in report.slow:
        corner = (link.dst - 0.46, link.src - 0.46)
        axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=FRAME, linewidth=2))


def _title(report: LinksReport) -> str:
    world = report.spec.world
    return f"links · {plural(world.world_size, 'rank')} · {world.backend} · {world.device}"


def _small(report: LinksReport) -> str:
    """Where, with what, and what the frames mean."""
    spec = report.spec
    about = [str(report.environment.get("host", "")), str(report.environment.get("processor", ""))]
    versions = [f"{name} {version}" for name, version in report.versions.items()]
    sizes = f"latency of {short_size(spec.small)} one way, bandwidth of {short_size(spec.large)}"
    slow = f"; framed {SLOW}: slow, beyond {spec.factor:g} times the median" * bool(report.slow)
    lame = f"; {slow_ranks(report)}" * bool(report.suspects)
    return f"{' · '.join(filter(None, [*about, *versions]))}\n{sizes}{slow}{lame}"
