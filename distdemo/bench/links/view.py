"""Tables of ``bench links``: two maps, the slow links by name, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from distdemo.bench.links.records import Link, LinksReport
from distdemo.view import colours
from distdemo.view.console import signs
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
from distdemo.view.tables import NARROW, heading

FEW = 16  # most slow links listed by name
MANY = 16  # most rows of a map; with more ranks, each cell is a block's worst link
SPREAD = 2.0  # least ratio of the darkest shade's value to the best, so that noise stays light
SHADES = ("#ffffcc", "#fed976", "#fd8d3c", "#e31a1c", "#800026")
"""Shades from fast to slow, each darker than the one before for readers who can't see colours."""
LIGHT = 3  # number of shades with black text
SLOW, WRONG = "!", "x"
UNSURE = "yellow"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of links.

    Attributes:
        name: Heading of its map, with the unit.
        of: Function that returns the figure of a link in that unit.
        high: True if more is better.
    """

    name: str
    of: Callable[[Link], float]
    high: bool

    def range(self, links: Sequence[Link]) -> tuple[float, float]:
        """Return the best figure, and the worst or ``SPREAD`` times the best if that is worse."""
        values = [self.of(link) for link in links]
        if self.high:
            return max(values), min(*values, max(values) / SPREAD)
        return min(values), max(*values, min(values) * SPREAD)


def measures(links: Sequence[Link]) -> tuple[Measure, Measure]:
    """Return latency and bandwidth in units that fit the links."""
    slowest = max(link.latency_s for link in links)
    fastest = max(link.bandwidth_bytes_per_s for link in links)
    time, second = ("ms", 1e3) if slowest >= 0.1 else ("µs", 1e6)
    unit, scale = ("GB/s", 1e9) if fastest >= 1e8 else ("MB/s", 1e6)
    return (
        Measure(f"Latency, {time}", lambda link: link.latency_s * second, high=False),
        Measure(f"Bandwidth, {unit}", lambda link: link.bandwidth_bytes_per_s / scale, high=True),
    )


def share_of(value: float, best: float, worst: float) -> float:
    """Return the position of a figure between best (0) and worst (1) on a logarithmic scale."""
    return math.log(value / best) / math.log(worst / best)


def table(report: LinksReport, console: Console) -> RenderableType:
    """Draw the measured pairs, with the verdict at the end."""
    sign, spec = signs(console), report.spec
    sizes = f"{exact_size(spec.small_bytes)} and {exact_size(spec.large_bytes)}"
    title = ("links", plural(spec.world_size, "rank"), spec.backend, spec.device, sizes)
    parts: list[RenderableType] = [heading(f" {sign.dot} ".join(title))]
    if report.links and console.width >= NARROW:
        for measure in measures(report.links):
            parts += [Text(), heading(f"{measure.name} (rows send, columns receive)")]
            parts += _map(report, measure, console)
        parts.append(_legend(report, console))
    parts += _worst(report, console)
    parts += [Text(note) for note in _notes(report)]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    parts.append(Text(f"{duration(report.elapsed_s)}\n{versions}".rstrip(), style=colours.QUIET))
    return Group(*parts, summary(report, console))


def summary(report: LinksReport, console: Console) -> RenderableType:
    """Draw the verdict: incomplete or wrong links, slow ranks and slow links."""
    sign, style = signs(console), UNSURE
    mark = sign.arrow
    if not report.ok:
        mark, style = sign.wrong, colours.WRONG
    elif not (report.slow_ranks or report.slow):
        mark, style = sign.right, colours.RIGHT
    due, got = report.spec.links, len(report.links)
    found = [plural(got, "link") if got == due else f"{got:,} of {plural(due, 'link')} measured"]
    if report.median_latency_s is not None:
        middle = rate(report.median_bandwidth_bytes_per_s or 0.0)
        found.append(f"median {duration(report.median_latency_s)} and {middle}")
    if report.wrong:
        found.append(plural(report.wrong, "wrong element"))
    others = " of the other links" if report.slow_ranks else ""
    slow = f"; {len(report.slow) or 'none'}{others} {'' if report.slow else 'is '}slow" * bool(got)
    ranks = f"{slow_ranks(report)}; check the host, not the links: "
    lead = "Interrupted: " * report.interrupted + ranks * bool(report.slow_ranks)
    return Text(f"{mark} {lead}{', '.join(found)}{slow}.", style=style)


def slow_ranks(report: LinksReport) -> str:
    """Return a clause that names the slow ranks."""
    one = len(report.slow_ranks) == 1
    names = listing([str(rank) for rank in report.slow_ranks])
    return (
        f"{'Rank' if one else 'Ranks'} {names} {'is' if one else 'are'} slow with all other ranks"
    )


# ------------------------------------------------------------------------------------------ maps


def _step(report: LinksReport) -> int:
    """Return the number of neighbouring ranks per row, for at most ``MANY`` rows."""
    return -(-report.spec.world_size // MANY)


def _map(report: LinksReport, measure: Measure, console: Console) -> Iterator[RenderableType]:
    """Draw a map, split into several tables if its columns don't fit."""
    size, step, sign = report.spec.world_size, _step(report), signs(console)
    names = [ranks_text(range(first, min(size, first + step))) for first in range(0, size, step)]
    cells: dict[tuple[int, int], list[Link]] = {}
    for link in report.links:
        cells.setdefault((link.src // step, link.dst // step), []).append(link)
    best, worst = measure.range(report.links)
    width = max(len(digits(value)) for value in (best, worst, *map(measure.of, report.links))) + 3
    left = console.width - max(map(len, names)) - 1
    width = max(width - (width * len(names) > left), *(len(name) + 1 for name in names))

    def cell(links: Sequence[Link]) -> Text:
        if not links:
            return Text(f"{sign.none} ".rjust(width), style=colours.QUIET)
        value = (min if measure.high else max)(map(measure.of, links))
        mark = SLOW if any(link.slow for link in links) else " "
        mark = WRONG if any(link.wrong for link in links) else mark
        shade = round(share_of(value, best, worst) * (len(SHADES) - 1))
        letters = "black" if shade < LIGHT else "white"
        style = Style(color=Color.parse(letters), bgcolor=Color.parse(SHADES[shade]))
        return Text(f"{digits(value)}{mark}".rjust(width), style=style)

    room = max(1, left // width)
    for begin in range(0, len(names), room):
        columns = range(begin, min(len(names), begin + room))
        drawn = Table(box=None, padding=0, pad_edge=False, header_style="bold")
        drawn.add_column("", justify="right", no_wrap=True, style="bold")
        for column in columns:
            drawn.add_column(f"{names[column]} ", justify="right", no_wrap=True, min_width=width)
        for row, name in enumerate(names):
            drawn.add_row(f"{name} ", *(cell(cells.get((row, column), [])) for column in columns))
        yield drawn


def _legend(report: LinksReport, console: Console) -> Text:
    step = _step(report)
    parts = [f"Each figure is the worst of {step} by {step} ranks."] * (step > 1)
    if report.slow:
        parts.append(f"{SLOW} slow: more than {number(report.spec.factor)} times the median.")
    parts += [f"{WRONG} wrong elements."] * bool(report.wrong)
    shaded = console.color_system is not None and not console.no_color
    parts += ["Darker is slower."] * shaded
    return Text(" ".join(parts), style=colours.QUIET)


# ----------------------------------------------------------------------------------------- words


def _worst(report: LinksReport, console: Console) -> Iterator[RenderableType]:
    """Draw the slow links by name; without a full map, the slowest links if none is slow."""

    def badness(link: Link) -> float:
        return max(link.latency_ratio, link.bandwidth_ratio)

    named = sorted(report.slow, key=badness, reverse=True)
    title = "Slow links"
    if not named and (console.width < NARROW or _step(report) > 1):
        named = sorted(report.links, key=badness, reverse=True)[:3]
        title = "Slowest links"
    if named:
        yield Text()
        yield heading(title)
    for link in named[:FEW]:
        ratios = {"latency": times(link.latency_ratio), "bandwidth": times(link.bandwidth_ratio)}
        why = [f"{figure} {ratios[figure]} worse than the median" for figure in link.slow]
        figures = f"{duration(link.latency_s)}, {rate(link.bandwidth_bytes_per_s)}"
        yield Text(f"{link.src} to {link.dst}: {figures}{f' ({listing(why)})' if why else ''}")
    if len(named) > FEW:
        more = f"{len(named) - FEW:,} more; --format json has them all"
        yield Text(more, style=colours.QUIET)


def _notes(report: LinksReport) -> Iterator[str]:
    yield "Latency is half of a round trip, so the two directions of a pair share it."
    yield "Figures are from the fastest tenth of a link's messages in the best round."
    if report.hosts:
        yield "Links within a host and links between hosts are judged separately."
