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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import backends
from distdemo.bench.judge import judge_links
from distdemo.bench.records import Link, LinksReport, LinksSpec
from distdemo.errors import Terminated
from distdemo.launcher.local import sends
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import environment
from distdemo.measure.statistics import quantile
from distdemo.measure.timing import shared_words
from distdemo.versions import versions

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

ROUNDS = 3
"""Rounds over all pairs: each link is measured at several times, and a short disturbance affects it
only once."""
BUDGET_S = 8.0  # for all rounds; each link needs at least a few messages
WINDOW = 4  # large messages sent before the receiver acknowledges them
FEWEST_TRIPS, MOST_TRIPS, MOST_WINDOWS = 5, 200, 16
FAST_SHARE = 0.1
"""Share of the fastest messages that determines a sample, rather than the median: other programs
sometimes delay most messages, while a slow link always delays all of them."""
PATTERN_PERIOD = 251  # not a power of two, so that shifted blocks are detected
SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.05  # per turn still ahead, and at most
SMALL, LARGE = 0, 1  # kinds of messages

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
        hosts,
        world=None if report is None or report.ok or interrupted else report,
        elapsed_s=monotonic() - began_s,
        interrupted=interrupted,
        environment=environment(gpu=world.device != "cpu"),
        versions=versions() | backends.versions_of(report.world if report else world),
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
