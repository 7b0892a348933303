"""Measure every pair of ranks in both directions, and find slow links and ranks.

One pair at a time exchanges messages with plain send and recv. All other ranks sleep meanwhile, so
that they use neither cores nor network::

    src  ─ small ─▶ dst        src  ─ large ─▶ dst
    src  ◀─ small ─ dst        src  ─ large ─▶ dst      WINDOW of them
    latency: half of it        src  ◀─ small ─ dst      bandwidth: total bytes / total time

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the links measured before are still judged
and reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from statistics import median_low
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist

from distdemo import backends
from distdemo.encoding import derived
from distdemo.errors import Terminated
from distdemo.launcher.local import sends
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import environment
from distdemo.measure.statistics import quantile
from distdemo.measure.timing import shared_words
from distdemo.versions import versions
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import digits, duration, exact_size, listing, plural, ranks_text, rate
from distdemo.view.tables import MANY, Column, Grid

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

ROUNDS = 3
"""Rounds over all pairs: each link is measured at several times, and a short disturbance affects it
only once."""
BUDGET_S = 8.0  # for all rounds; each link needs at least a few messages
SLOW_RATIO = 2.0
"""Ratio to the median above which a latency or a time per byte is slow."""
SIMILAR_RATIO = 4.0
"""Largest ratio of a slow rank's slowest link to its fastest: a slow rank delays all its links. If
the ratio is larger, single links are slow."""
WINDOW = 4  # large messages sent before the receiver acknowledges them
FEWEST_TRIPS, MOST_TRIPS, MOST_WINDOWS = 5, 200, 16
FAST_SHARE = 0.1
"""Share of the fastest messages that determines a sample, rather than the median: other programs
sometimes delay most messages, while a slow link always delays all of them."""
PATTERN_PERIOD = 251  # not a power of two, so that shifted blocks are detected
SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.05  # per turn still ahead, and at most
MOST_LISTED = 16  # most slow links listed by name
SMALL, LARGE = 0, 1  # kinds of messages

# ----------------------------------------------------------------------------------------- records

Figure = Literal["latency", "bandwidth"]


@dataclass(frozen=True, slots=True)
class LinksSpec:
    """Parameters of a measurement of every pair of ranks in both directions.

    Attributes:
        small_bytes: Size of the message for the latency.
        large_bytes: Size of the message for the bandwidth.
    """

    world_size: int
    backend: str
    device: str
    small_bytes: int = 8
    large_bytes: int = 1 << 20

    @property
    def links(self) -> int:
        """Number of links: one per ordered pair of ranks."""
        return self.world_size * (self.world_size - 1)


@dataclass(frozen=True, slots=True)
class Link:
    """A link from one rank to another, or a measurement of it.

    Attributes:
        latency_s: Time of a small message one way, half a round trip. Like the bandwidth, of the
            fastest tenth of the messages in the best round.
        bandwidth_bytes_per_s: Bandwidth of large messages one way.
        wrong: Number of wrong elements received.
        slow: Figures in which the link is slow.
    """

    src: int
    dst: int
    latency_s: float
    bandwidth_bytes_per_s: float
    wrong: int = 0
    slow: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class LinksReport:
    """Measured links between every pair of ranks.

    Attributes:
        links: Measured links, one per ordered pair; all of them unless the world failed.
        slow_ranks: Ranks whose links are all similarly slow, so that the rank is the cause.
        hosts: Host of each rank; empty if all are on this machine.
        world: Report of the failed world; None if it succeeded.
    """

    spec: LinksSpec
    links: tuple[Link, ...]
    slow_ranks: tuple[int, ...] = ()
    elapsed_s: float = 0.0
    interrupted: bool = False
    hosts: tuple[str, ...] = ()
    environment: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    world: WorldReport | None = field(default=None, metadata={"json": False})

    @property
    def slow(self) -> tuple[Link, ...]:
        """Slow links."""
        return tuple(link for link in self.links if link.slow)

    @derived
    def median_latency_s(self) -> float | None:
        """Median over the links; None without links."""
        return median_low(link.latency_s for link in self.links) if self.links else None

    @derived
    def median_bandwidth_bytes_per_s(self) -> float | None:
        """Median over the links; None without links."""
        return median_low(link.bandwidth_bytes_per_s for link in self.links) if self.links else None

    @derived
    def wrong(self) -> int:
        """Number of wrong elements received on all links."""
        return sum(link.wrong for link in self.links)

    @property
    def ok(self) -> bool:
        """True if all pairs were measured and correct; a slow link is a finding, not a failure."""
        whole = len(self.links) == self.spec.links and not self.interrupted
        return self.world is None and whole and not self.wrong


# ------------------------------------------------------------------------------------ in each rank


@sends(Link)
def measure(rank: Rank, spec: LinksSpec) -> None:
    """Measure every pair in every round and send each link when it is measured. Collective."""
    endpoint = Endpoint(rank, spec)
    turns = Turns(rank)
    pairs = combinations(range(rank.world_size), 2)
    number = 0
    for round_number, (first, second) in product(range(ROUNDS), pairs):
        if rank.rank in (first, second):
            turns.wait(number)
            rank.report_phase(f"ranks {first} and {second}, round {round_number + 1} of {ROUNDS}")
            for src, dst in ((first, second), (second, first)):
                offset = (31 * src + 7 * dst + 101 * round_number) % 256  # different data each time
                if rank.rank == src:
                    rank.send(endpoint.send(dst, offset))
                else:
                    endpoint.receive(src, offset)
        number += 1
        if rank.rank == first:
            turns.start(number)
    turns.wait(number)  # the end, for all ranks
    rank.report_phase("done")


class Turns:
    """Number of the current turn: in shared memory if possible, else in the world's store.

    Every waiting rank polls a file store a hundred times per second, and each of thousands of turns
    starts up to 10 ms late.
    """

    def __init__(self, rank: Rank) -> None:
        self._words = shared_words(rank, "links", 1)
        self._store = rank.store("links")

    def wait(self, number: int) -> None:
        """Return when the turn with this number may start."""
        if self._words is None:
            if number:
                self._store.wait([str(number)])
            return
        while (ahead := number - self._words[0]) > 0:
            time.sleep(min(LONGEST_SLEEP_S, SLEEP_S * ahead))

    def start(self, number: int) -> None:
        """Start the turn with this number."""
        if self._words is None:
            self._store.set(str(number), "")
        else:
            self._words[0] = number


class Endpoint:
    """This rank's end of all its links. Its sequences have one item per kind of message."""

    def __init__(self, rank: Rank, spec: LinksSpec) -> None:
        self._rank = rank
        self._large_bytes = spec.large_bytes
        self._limit_s = BUDGET_S / (ROUNDS * spec.links) / 2  # per kind of message
        sizes = (spec.small_bytes, spec.large_bytes)
        self._patterns = [_pattern(size, rank.device) for size in sizes]
        self._buffers = [torch.empty_like(pattern) for pattern in self._patterns]
        self._acknowledgement = torch.empty_like(self._patterns[SMALL])
        self._header = torch.zeros(2, dtype=torch.int64, device=rank.device)

    def send(self, dst: int, offset: int) -> Link:
        """Measure the link to this rank, which calls ``receive``."""
        self._fill(offset)
        for _ in range(2):  # not counted: backends connect at the first message
            self._round_trip_s(dst, SMALL, 1)
        trips = int(self._limit_s / self._round_trip_s(dst, SMALL, 1))
        windows = int(self._limit_s / self._round_trip_s(dst, LARGE, WINDOW))
        trips = min(MOST_TRIPS, max(FEWEST_TRIPS, trips))
        windows = min(MOST_WINDOWS, max(1, windows))
        self._header.copy_(torch.tensor([trips, windows]))
        dist.send(self._header, dst)
        trips_s = sorted(self._round_trip_s(dst, SMALL, 1) for _ in range(trips))
        windows_s = sorted(self._round_trip_s(dst, LARGE, WINDOW) for _ in range(windows))
        dist.recv(self._header, dst)
        bandwidth = WINDOW * self._large_bytes / quantile(windows_s, FAST_SHARE)
        latency_s = quantile(trips_s, FAST_SHARE) / 2
        return Link(self._rank.rank, dst, latency_s, bandwidth, wrong=int(self._header[0]))

    def receive(self, src: int, offset: int) -> None:
        """Answer the messages of ``send``, and report the wrong elements of the last ones."""
        self._fill(offset + 1)  # wrong everywhere until received
        for _ in range(3):
            self._answer(src, SMALL, 1)
        self._answer(src, LARGE, WINDOW)
        dist.recv(self._header, src)
        trips, windows = map(int, self._header.tolist())
        for _ in range(trips):
            self._answer(src, SMALL, 1)
        for _ in range(windows):
            self._answer(src, LARGE, WINDOW)
        self._header[0] = sum(
            int((buffer.sub_(offset) != pattern).sum())  # bytes wrap back
            for buffer, pattern in zip(self._buffers, self._patterns, strict=True)
        )
        dist.send(self._header, src)

    def _round_trip_s(self, dst: int, kind: int, count: int) -> float:
        """Return the seconds until this many messages are acknowledged."""
        self._rank.synchronize()
        began_s = perf_counter()
        for _ in range(count):
            dist.send(self._buffers[kind], dst)
        dist.recv(self._acknowledgement, dst)
        self._rank.synchronize()
        return perf_counter() - began_s

    def _answer(self, src: int, kind: int, count: int) -> None:
        """Receive this many messages and acknowledge them."""
        for _ in range(count):
            dist.recv(self._buffers[kind], src)
        dist.send(self._buffers[SMALL], src)

    def _fill(self, offset: int) -> None:
        for buffer, pattern in zip(self._buffers, self._patterns, strict=True):
            torch.add(pattern, offset % 256, out=buffer)  # bytes wrap


def _pattern(size: int, device: str) -> Tensor:
    period = torch.arange(PATTERN_PERIOD, dtype=torch.uint8, device=device)
    return period.repeat(-(-size // PATTERN_PERIOD))[:size]


# -------------------------------------------------------------------------------- in the launcher


def measure_links(
    spec: LinksSpec, world: WorldSpec, start: Callable[..., WorldReport]
) -> LinksReport:
    """Measure every pair of ranks in both directions.

    Args:
        spec: Spec of the measurement.
        world: World to measure.
        start: Function that starts the world, such as ``Session.start``.
    """
    began_s = monotonic()
    samples: list[Link] = []

    def on_message(_: int, sample: Link) -> None:
        samples.append(sample)

    report = None
    with suppress(KeyboardInterrupt, Terminated):
        report = start(world, measure, (spec,), on_message=on_message)
    interrupted = report is None or report.interrupted_by is not None
    hosts = tuple(report.hosts) if report else ()
    links, slow_ranks = judge_links(_best(samples), hosts)
    return LinksReport(
        spec,
        links,
        slow_ranks,
        monotonic() - began_s,
        interrupted,
        hosts,
        environment(gpu=world.device != "cpu"),
        versions() | backends.versions_of(report.world if report else world),
        None if report is None or report.ok or interrupted else report,
    )


def _best(samples: Sequence[Link]) -> list[Link]:
    """Return each link with the best of its rounds.

    The best rather than the median, because other programs only make rounds slower and may last for
    several of them. A slow link is slow in every round.
    """
    links: dict[tuple[int, int], Link] = {}
    for sample in samples:
        link = links.setdefault((sample.src, sample.dst), replace(sample, wrong=0))
        links[sample.src, sample.dst] = replace(
            link,
            latency_s=min(link.latency_s, sample.latency_s),
            bandwidth_bytes_per_s=max(link.bandwidth_bytes_per_s, sample.bandwidth_bytes_per_s),
            wrong=link.wrong + sample.wrong,
        )
    return [link for _, link in sorted(links.items())]


COSTS: dict[Figure, Callable[[Link], float]] = {
    "latency": lambda link: link.latency_s,
    "bandwidth": lambda link: 1 / link.bandwidth_bytes_per_s,
}
"""Figures in which a link can be slow, as times."""


def judge_links(
    links: Sequence[Link], hosts: Sequence[str] = ()
) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """Return the links with the slow ones marked, and the slow ranks.

    A link is compared with the median of its kind: links within a host and links between hosts are
    two kinds. A rank is slow if all its outgoing links, or all its incoming ones, are similarly
    slow. Its links are not marked then.

    Args:
        links: Measured links, at most one per ordered pair.
        hosts: Host of each rank; empty if all are on one.
    """
    kinds: dict[bool, list[Link]] = {}
    for link in links:
        crosses = bool(hosts) and hosts[link.src] != hosts[link.dst]
        kinds.setdefault(crosses, []).append(link)
    ratios: dict[Figure, dict[tuple[int, int], float]] = {figure: {} for figure in COSTS}
    for alike in kinds.values():
        for figure, cost in COSTS.items():
            usual = median_low(map(cost, alike))
            ratios[figure] |= {(link.src, link.dst): cost(link) / usual for link in alike}
    slow_ranks = tuple(
        rank
        for rank in sorted({link.src for link in links})
        if any(
            _are_alike_slow([ratio for ends, ratio in by_ends.items() if ends[end] == rank])
            for by_ends in ratios.values()
            for end in (0, 1)
        )
    )
    judged = []
    for link in links:
        ends = (link.src, link.dst)
        if not {*ends} & {*slow_ranks}:
            slow = (name for name, by_ends in ratios.items() if by_ends[ends] > SLOW_RATIO)
            link = replace(link, slow=tuple(slow))  # noqa: PLW2901 - the same link, judged
        judged.append(link)
    return tuple(judged), slow_ranks


def _are_alike_slow(ratios: Sequence[float]) -> bool:
    """Return True if all these links are slow, and similarly so: then their rank is the cause."""
    return len(ratios) > 1 and max(SLOW_RATIO, max(ratios) / SIMILAR_RATIO) < min(ratios)


# -------------------------------------------------------------------------------------------- view


def links_view(report: LinksReport, sign: Signs) -> Iterator[Block]:
    """Yield two tables with a row per sender, the slow links by name, and the verdict."""
    spec = report.spec
    sizes = f"{exact_size(spec.small_bytes)} and {exact_size(spec.large_bytes)}"
    title = ("links", plural(spec.world_size, "rank"), spec.backend, spec.device, sizes)
    yield Heading(f" {sign.dot} ".join(title))
    if spec.world_size <= MANY:
        yield from _table(report, sign, "Latency, µs", lambda link: 1e6 * link.latency_s)
        bandwidth = "Bandwidth, GB/s"
        yield from _table(report, sign, bandwidth, lambda link: link.bandwidth_bytes_per_s / 1e9)
    if report.slow:
        yield Paragraph()
        yield Heading(f"Slow links: more than {SLOW_RATIO:g} times the median")
    for link in report.slow[:MOST_LISTED]:
        figures = f"{duration(link.latency_s)}, {rate(link.bandwidth_bytes_per_s)}"
        yield Paragraph(f"{link.src} to {link.dst}: {figures} ({listing(link.slow)})")
    more = len(report.slow) - MOST_LISTED
    if more > 0:
        yield Paragraph(f"{more:,} more; --format json has them all", colours.QUIET)
    yield Paragraph()
    known = (f"{name} {version}" for name, version in report.versions.items())
    yield Paragraph(", ".join((duration(report.elapsed_s), *known)), colours.QUIET)
    doubtful = bool(report.slow_ranks or report.slow)
    yield Summary(verdict_text(report), None if report.ok and doubtful else report.ok, "!")


def _table(
    report: LinksReport, sign: Signs, name: str, value: Callable[[Link], float]
) -> Iterator[Block]:
    """Yield a table of a figure; ``!`` marks slow links, ``x`` those with wrong elements."""
    links = {(link.src, link.dst): link for link in report.links}
    ranks = range(report.spec.world_size)

    def cell(src: int, dst: int) -> str:
        link = links.get((src, dst))
        if link is None:
            return sign.none
        mark = "x" if link.wrong else "!" if link.slow else ""
        return f"{digits(value(link))}{mark}"

    columns = [Column("from \\ to", right=True), *(Column(str(rank), right=True) for rank in ranks)]
    grid = Grid(columns, [[str(src), *(cell(src, dst) for dst in ranks)] for src in ranks])
    yield Paragraph()
    yield Heading(name)
    yield grid


def verdict_text(report: LinksReport) -> str:
    """Return the verdict: incomplete or wrong links, slow ranks and slow links."""
    links = plural(report.spec.links, "link")
    measured = len(report.links)
    parts = [links if report.spec.links == measured else f"{measured:,} of {links} measured"]
    if report.median_latency_s is not None:
        bandwidth = rate(report.median_bandwidth_bytes_per_s or 0.0)
        parts.append(f"median {duration(report.median_latency_s)} and {bandwidth}")
    if report.wrong:
        parts.append(plural(report.wrong, "wrong element"))
    if report.slow_ranks:
        ranks = ranks_text(report.slow_ranks)
        slow = f"slow: rank{'s' * (len(report.slow_ranks) > 1)} {ranks}"
        parts.append(f"{slow} (check the host, not the links)")
    parts.append(f"slow links: {len(report.slow)}")
    return f"{'Interrupted: ' * report.interrupted}{', '.join(parts)}."
