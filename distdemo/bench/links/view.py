"""Report of ``bench links``: two maps, the slow links by name, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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

Value = Callable[[Link], float]
"""Function that returns a figure of a link, in the unit of its map."""


def links_view(report: LinksReport, sign: Signs) -> Iterator[Block]:
    """Yield the measured pairs, with the verdict at the end."""
    spec = report.spec
    sizes = f"{exact_size(spec.small_bytes)} and {exact_size(spec.large_bytes)}"
    title = ("links", plural(spec.world_size, "rank"), spec.backend, spec.device, sizes)
    yield Heading(f" {sign.dot} ".join(title))
    for name, value, worst in _maps(report):
        yield Paragraph()
        yield Heading(f"{name} (rows send, columns receive)")
        yield Drawing(partial(_map, report, value, worst))
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
    total = report.spec.links
    measured = len(report.links)
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
        names = listing([str(rank) for rank in report.slow_ranks])
        ranks = f"Ranks {names} are" if report.slow_ranks[1:] else f"Rank {names} is"
        text = f"{ranks} slow with all other ranks; check the host, not the links: {text}"
    text = f"{'Interrupted: ' * report.interrupted}{text}."
    if report.disturbed:
        taken = digits(report.taken_cores or 0.0)
        text += (
            f" Disturbed: other programs took {taken} cores from the ranks. Stop them (see top)."
        )
    return text


# ------------------------------------------------------------------------------------------ maps


def _maps(report: LinksReport) -> Iterator[tuple[str, Value, Callable[..., float]]]:
    """Yield name, value and the choice of the worst, for latency and bandwidth in fitting units."""
    links = report.links
    if links:
        seconds = max(link.latency_s for link in links)
        unit, scale = ("ms", 1e3) if seconds >= 0.1 else ("µs", 1e6)
        yield f"Latency, {unit}", lambda link: link.latency_s * scale, max
        bandwidth = max(link.bandwidth_bytes_per_s for link in links)
        rate_unit, divisor = ("GB/s", 1e9) if bandwidth >= 1e8 else ("MB/s", 1e6)
        yield f"Bandwidth, {rate_unit}", lambda link: link.bandwidth_bytes_per_s / divisor, min


def shade_of(value: float, best: float, worst: float) -> int:
    """Return the index of a value's shade between best and worst, on a logarithmic scale."""
    slowness = abs(math.log(value / best))
    most = max(abs(math.log(worst / best)), math.log(MIN_RANGE))
    return round(slowness / most * (len(SHADES) - 1))


def _step(report: LinksReport) -> int:
    """Return the number of neighbouring ranks per row, for at most ``MOST_ROWS`` rows."""
    return -(-report.spec.world_size // MOST_ROWS)


def _map(
    report: LinksReport, value: Value, worst_of: Callable[..., float], console: Console
) -> Group:
    """Draw a map, split into several tables if its columns don't fit."""
    size = report.spec.world_size
    step = _step(report)
    sign = signs(console)
    names = [ranks_text(range(first, min(size, first + step))) for first in range(0, size, step)]
    blocks: dict[tuple[int, int], list[Link]] = {}
    for link in report.links:
        blocks.setdefault((link.src // step, link.dst // step), []).append(link)
    values = [value(link) for link in report.links]
    best = min(values) if worst_of is max else max(values)
    width = max(len(digits(figure)) for figure in values) + 3
    left = console.width - max(map(len, names)) - 1
    width = max(width - (width * len(names) > left), *(len(name) + 1 for name in names))

    def cell(row: int, column: int) -> Text:
        links = blocks.get((row, column))
        if not links:
            return Text(f"{sign.none} ".rjust(width), style=colours.QUIET)
        figure = worst_of(map(value, links))
        mark = SLOW_MARK if any(link.slow for link in links) else " "
        mark = WRONG_MARK if any(link.wrong for link in links) else mark
        shade = shade_of(figure, best, worst_of(values))
        letters = "black" if shade < LIGHT_SHADES else "white"
        style = Style(color=Color.parse(letters), bgcolor=Color.parse(SHADES[shade]))
        return Text(f"{digits(figure)}{mark}".rjust(width), style=style)

    room = max(1, left // width)
    parts: list[RenderableType] = []
    for begin in range(0, len(names), room):
        columns = range(begin, min(len(names), begin + room))
        drawn = Table(box=None, padding=0, pad_edge=False, header_style="bold")
        drawn.add_column("", justify="right", no_wrap=True, style="bold")
        for column in columns:
            drawn.add_column(f"{names[column]} ", justify="right", no_wrap=True, min_width=width)
        for row, name in enumerate(names):
            drawn.add_row(f"{name} ", *(cell(row, column) for column in columns))
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
        yield Paragraph(f"{link.src} to {link.dst}: {figures} ({listing(why)})")
    if len(named) > MOST_LISTED:
        more = f"{len(named) - MOST_LISTED:,} more; --format json has them all"
        yield Paragraph(more, colours.QUIET)
