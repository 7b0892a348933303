"""Report of ``bench links``: two maps, the slow links by name, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from distdemo.bench.links.records import Link, LinksReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Heading, Paragraph, Summary
from distdemo.view.console import Signs, signs
from distdemo.view.format import (
    digits,
    duration,
    exact_size,
    listing,
    number,
    plural,
    ranks_text,
    rate,
    times,
)

MOST_LISTED = 16  # most slow links listed by name
MOST_ROWS = 16  # most rows of a map; with more ranks, each cell is a block's worst link
MIN_RANGE = 2.0  # least ratio of the darkest shade's value to the best, so that noise stays light
SHADES = ("#ffffcc", "#fed976", "#fd8d3c", "#e31a1c", "#800026")
"""Shades from fast to slow, each darker than the one before for readers who can't see colours."""
LIGHT_SHADES = 3  # number of shades with black text
SLOW_MARK, WRONG_MARK = "!", "x"


@dataclass(frozen=True, slots=True)
class Metric:
    """Latency or bandwidth.

    Attributes:
        name: Heading of its map, with the unit.
        value: Function that returns the figure of a link in that unit.
        is_rate: True if more is better.
    """

    name: str
    value: Callable[[Link], float]
    is_rate: bool = False

    def range(self, links: Sequence[Link]) -> tuple[float, float]:
        """Return the best figure, and the worst: at least ``MIN_RANGE`` times worse."""
        values = [self.value(link) for link in links]
        if self.is_rate:
            return max(values), min(*values, max(values) / MIN_RANGE)
        return min(values), max(*values, min(values) * MIN_RANGE)


def metrics(links: Sequence[Link]) -> tuple[Metric, Metric]:
    """Return latency and bandwidth in units that fit the links."""
    slowest = max(link.latency_s for link in links)
    fastest = max(link.bandwidth_bytes_per_s for link in links)
    time, second = ("ms", 1e3) if slowest >= 0.1 else ("µs", 1e6)
    unit, scale = ("GB/s", 1e9) if fastest >= 1e8 else ("MB/s", 1e6)
    return (
        Metric(f"Latency, {time}", lambda link: link.latency_s * second),
        Metric(f"Bandwidth, {unit}", lambda link: link.bandwidth_bytes_per_s / scale, is_rate=True),
    )


def shade_position(value: float, best: float, worst: float) -> float:
    """Return the position of a figure between best (0) and worst (1) on a logarithmic scale."""
    return math.log(value / best) / math.log(worst / best)


def links_view(report: LinksReport, sign: Signs) -> Iterator[Block]:
    """Yield the measured pairs, with the verdict at the end."""
    spec = report.spec
    sizes = f"{exact_size(spec.small_bytes)} and {exact_size(spec.large_bytes)}"
    title = ("links", plural(spec.world_size, "rank"), spec.backend, spec.device, sizes)
    yield Heading(f" {sign.dot} ".join(title))
    for metric in metrics(report.links) if report.links else ():
        yield Paragraph()
        yield Heading(f"{metric.name} (rows send, columns receive)")
        yield Drawing(partial(_map, report, metric))
    if legend := " ".join(_legend(report)):
        yield Paragraph(legend, colours.QUIET)
    yield from _slow_links(report)
    yield Paragraph()
    yield Paragraph("Latency is half of a round trip, so the two directions of a pair share it.")
    yield Paragraph("Figures are from the fastest tenth of a link's messages in the best round.")
    if report.hosts:
        yield Paragraph("Links within a host and links between hosts are judged separately.")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield Paragraph(f"{duration(report.elapsed_s)}\n{versions}".rstrip(), colours.QUIET)
    doubtful = bool(report.slow_ranks or report.slow) or report.disturbed
    yield Summary(_verdict(report), None if report.ok and doubtful else report.ok, "!")


def _verdict(report: LinksReport) -> str:
    """Return the verdict: incomplete or wrong links, slow ranks and slow links."""
    total, measured = report.spec.links, len(report.links)
    links = plural(total, "link")
    parts = [links if measured == total else f"{measured:,} of {links} measured"]
    if report.median_latency_s is not None:
        bandwidth = rate(report.median_bandwidth_bytes_per_s or 0.0)
        parts.append(f"median {duration(report.median_latency_s)} and {bandwidth}")
    if report.wrong:
        parts.append(plural(report.wrong, "wrong element"))
    text = ", ".join(parts)
    if measured:
        others = " of the other links" if report.slow_ranks else ""
        text += f"; {len(report.slow) or 'none'}{others} {'' if report.slow else 'is '}slow"
    if report.slow_ranks:
        text = f"{slow_ranks(report)}; check the host, not the links: {text}"
    text = f"{'Interrupted: ' * report.interrupted}{text}."
    if report.disturbed:
        taken = digits(report.taken_cores or 0.0)
        text += (
            f" Disturbed: other programs took {taken} cores from the ranks. Stop them (see top)."
        )
    return text


def slow_ranks(report: LinksReport) -> str:
    """Return a clause that names the slow ranks."""
    one = len(report.slow_ranks) == 1
    names = listing([str(rank) for rank in report.slow_ranks])
    return (
        f"{'Rank' if one else 'Ranks'} {names} {'is' if one else 'are'} slow with all other ranks"
    )


# ------------------------------------------------------------------------------------------ maps


def _step(report: LinksReport) -> int:
    """Return the number of neighbouring ranks per row, for at most ``MOST_ROWS`` rows."""
    return -(-report.spec.world_size // MOST_ROWS)


def _map(report: LinksReport, metric: Metric, console: Console) -> Group:
    """Draw a map, split into several tables if its columns don't fit."""
    size, step, sign = report.spec.world_size, _step(report), signs(console)
    names = [ranks_text(range(first, min(size, first + step))) for first in range(0, size, step)]
    cells: dict[tuple[int, int], list[Link]] = {}
    for link in report.links:
        cells.setdefault((link.src // step, link.dst // step), []).append(link)
    best, worst = metric.range(report.links)
    width = max(len(digits(value)) for value in (best, worst, *map(metric.value, report.links))) + 3
    left = console.width - max(map(len, names)) - 1
    width = max(width - (width * len(names) > left), *(len(name) + 1 for name in names))

    def cell(links: Sequence[Link]) -> Text:
        if not links:
            return Text(f"{sign.none} ".rjust(width), style=colours.QUIET)
        value = (min if metric.is_rate else max)(map(metric.value, links))
        mark = SLOW_MARK if any(link.slow for link in links) else " "
        mark = WRONG_MARK if any(link.wrong for link in links) else mark
        shade = round(shade_position(value, best, worst) * (len(SHADES) - 1))
        letters = "black" if shade < LIGHT_SHADES else "white"
        style = Style(color=Color.parse(letters), bgcolor=Color.parse(SHADES[shade]))
        return Text(f"{digits(value)}{mark}".rjust(width), style=style)

    room = max(1, left // width)
    parts: list[RenderableType] = []
    for begin in range(0, len(names), room):
        columns = range(begin, min(len(names), begin + room))
        drawn = Table(box=None, padding=0, pad_edge=False, header_style="bold")
        drawn.add_column("", justify="right", no_wrap=True, style="bold")
        for column in columns:
            drawn.add_column(f"{names[column]} ", justify="right", no_wrap=True, min_width=width)
        for row, name in enumerate(names):
            drawn.add_row(f"{name} ", *(cell(cells.get((row, column), [])) for column in columns))
        parts.append(drawn)
    if console.color_system is not None and not console.no_color:
        parts.append(Text("Darker is slower.", style=colours.QUIET))
    return Group(*parts)


def _legend(report: LinksReport) -> Iterator[str]:
    step = _step(report)
    if step > 1:
        yield f"Each figure is the worst of {step} by {step} ranks."
    if any(link.slow and not link.wrong for link in report.links):
        yield f"{SLOW_MARK} slow: more than {number(report.spec.factor)} times the median."
    if report.wrong:
        yield f"{WRONG_MARK} wrong elements."


# ----------------------------------------------------------------------------------------- words


def _slow_links(report: LinksReport) -> Iterator[Block]:
    """Yield the slow links by name."""

    def badness(link: Link) -> float:
        return max(link.latency_ratio, link.bandwidth_ratio)

    named = sorted(report.slow, key=badness, reverse=True)
    if named:
        yield Paragraph()
        yield Heading("Slow links")
    for link in named[:MOST_LISTED]:
        ratios = {"latency": times(link.latency_ratio), "bandwidth": times(link.bandwidth_ratio)}
        why = [f"{figure} {ratios[figure]} worse than the median" for figure in link.slow]
        figures = f"{duration(link.latency_s)}, {rate(link.bandwidth_bytes_per_s)}"
        yield Paragraph(f"{link.src} to {link.dst}: {figures}{f' ({listing(why)})' if why else ''}")
    if len(named) > MOST_LISTED:
        more = f"{len(named) - MOST_LISTED:,} more; --format json has them all"
        yield Paragraph(more, colours.QUIET)
