"""Code that every rank of bench links runs: measure one pair at a time.

All other ranks sleep meanwhile, so that they use neither cores nor network. A link is measured with
plain send and recv::

    src  ─ small ─▶ dst        src  ─ large ─▶ dst
    src  ◀─ small ─ dst        src  ─ large ─▶ dst      WINDOW of them
    latency: half of it        src  ◀─ small ─ dst      bandwidth: total bytes / total time
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo.bench.links.records import LinksSpec
from distdemo.launcher.local import sends
from distdemo.measure.machine import LaunchLoad, load_since, read_clocks
from distdemo.measure.statistics import quantile
from distdemo.measure.timing import HEARTBEAT_S, shared_words

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

SMALL, LARGE = 0, 1  # kinds of messages
MANY_RANKS = 16  # with more, a phase per turn would keep the launcher and so the cores busy
MOST_TRIPS, MOST_LARGE = 200, 64  # timed messages per sample: more don't improve it
FEWEST_TRIPS = 5
BATCH = 20  # small messages between two checks of the time limit
WINDOW = 4  # large messages sent before the receiver acknowledges them
FAST_SHARE = 0.1
"""Share of the fastest messages that determines a sample, rather than the median: other programs
sometimes delay most messages, while a slow link always delays all of them."""
BLOCK_BYTES = 1 << 20  # bytes compared at once, because a buffer may take most of the memory
PATTERN_PERIOD = 251  # not a power of two, so that shifted blocks are detected
SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.05  # per turn still ahead, and at most


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One measurement of a link, reported by the source rank.

    Attributes:
        host: Host of the source rank.
        latency_s: Time of a small message one way: half a round trip in the fastest tenth.
        bandwidth_bytes_per_s: Bandwidth of a window in the fastest tenth.
        wrong: Number of wrong elements in the last messages.
    """

    src: int
    dst: int
    round: int
    host: str
    latency_s: float
    bandwidth_bytes_per_s: float
    wrong: int


@sends(LinkSample | LaunchLoad)
def measure(rank: Rank, spec: LinksSpec) -> None:
    """Measure every pair and send each sample when it is complete, then the load. Collective.

    Every round covers all pairs, so each link is measured at several times and a short disturbance
    affects it only once.
    """
    endpoint = _Endpoint(rank, spec)
    turns = _Turns(rank)
    before = read_clocks()
    number = 0
    for round_index in range(spec.rounds):
        phase = f"round {round_index + 1} of {spec.rounds}"
        if rank.world_size > MANY_RANKS:
            rank.report_phase(phase)
        for first, second in combinations(range(rank.world_size), 2):
            if rank.world_size <= MANY_RANKS:
                rank.report_phase(f"ranks {first} and {second}, {phase}")
            if rank.rank in (first, second):
                turns.wait(number)
                endpoint.measure(first, second, round_index)
                endpoint.measure(second, first, round_index)
            number += 1
            if rank.rank == first:  # it received the last answer, so the other rank is done too
                turns.start(number)
    turns.wait(number)  # the end, for all ranks
    rank.send(load_since(before))
    rank.report_phase("done")


class _Turns:
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


class _Endpoint:
    """This rank's end of all its links. Its sequences have one item per kind of message."""

    def __init__(self, rank: Rank, spec: LinksSpec) -> None:
        self._rank = rank
        self._spec = spec
        sizes = (spec.small_bytes, spec.large_bytes)
        self._patterns = [_pattern(size, rank.device) for size in sizes]
        self._buffers = [torch.empty_like(pattern) for pattern in self._patterns]
        self._header = torch.zeros(3, dtype=torch.int64, device=rank.device)
        self._estimates: dict[int, tuple[float, float]] = {}  # seconds of small and large, by rank
        self._reported = perf_counter()

    def measure(self, src: int, dst: int, round_index: int) -> None:
        """Measure the link from src to dst; both ranks call this."""
        self._reported = perf_counter()
        offset = 31 * src + 7 * dst + 101 * round_index  # so that the data differs between samples
        if self._rank.rank == src:
            self._rank.send(self._send(dst, round_index, offset))
        else:
            self._receive(src, round_index, offset)

    def _send(self, dst: int, round_index: int, offset: int) -> LinkSample:
        self._fill(offset)
        if round_index == 0:  # not timed: backends connect at the first message
            for _ in range(2):
                self._round_trip(dst, SMALL, 1)
            self._estimates[dst] = (
                self._round_trip(dst, SMALL, 1),
                self._round_trip(dst, LARGE, 1),
            )
        small_s, large_s = self._estimates[dst]
        limit_s = self._spec.budget_s / max(1, self._spec.measurements) / 2  # per kind of message
        trips = min(MOST_TRIPS, max(FEWEST_TRIPS, int(limit_s / max(small_s, 1e-9))))
        messages = min(MOST_LARGE, max(1, int(limit_s / max(large_s, 1e-9))))
        window = min(WINDOW, messages)
        trip_s = self._fastest(dst, SMALL, 1, trips, BATCH, limit_s)
        window_s = self._fastest(dst, LARGE, window, -(-messages // window), 1, limit_s)
        self._estimates[dst] = (trip_s, window_s / window)
        self._announce(dst, SMALL, 0, 0)
        dist.recv(self._header, dst)
        return LinkSample(
            self._rank.rank,
            dst,
            round_index,
            socket.gethostname(),
            trip_s / 2,
            window * self._spec.large_bytes / window_s,
            wrong=int(self._header[0]),
        )

    def _fastest(
        self, dst: int, kind: int, window: int, most: int, batch: int, limit_s: float
    ) -> float:
        """Return the seconds per window in the fastest tenth of the windows.

        Args:
            dst: Receiving rank.
            kind: Kind of message.
            window: Messages per window.
            most: Largest number of windows.
            batch: Windows between two checks of the clock.
            limit_s: Seconds after which no further batch starts.
        """
        took: list[float] = []
        until = perf_counter() + limit_s
        while len(took) < most and (not took or perf_counter() <= until):
            count = min(batch, most - len(took))
            self._announce(dst, kind, window, count)
            took += [self._round_trip(dst, kind, window) for _ in range(count)]
            if perf_counter() - self._reported > HEARTBEAT_S:
                self._rank.send(None)
                self._reported = perf_counter()
        return quantile(sorted(took), FAST_SHARE)

    def _announce(self, dst: int, *header: int) -> None:
        """Announce the kind of message, messages per window and number of windows; 0 to stop."""
        self._header.copy_(torch.tensor(header))
        dist.send(self._header, dst)

    def _round_trip(self, dst: int, kind: int, window: int) -> float:
        """Return the seconds for a window of messages and the small answer of the other rank."""
        began = perf_counter()
        for _ in range(window):
            dist.send(self._buffers[kind], dst)
        dist.recv(self._buffers[SMALL], dst)
        self._rank.synchronize()
        return perf_counter() - began

    def _receive(self, src: int, round_index: int, offset: int) -> None:
        """Answer the messages of ``_send``."""

        def answer(kind: int, window: int) -> None:
            for _ in range(window):
                dist.recv(self._buffers[kind], src)
            dist.send(self._buffers[SMALL], src)

        self._fill(offset + 1)  # wrong everywhere until received
        for kind in (SMALL, SMALL, SMALL, LARGE) if round_index == 0 else ():
            answer(kind, 1)
        windows = 1
        while windows:
            dist.recv(self._header, src)
            kind, window, windows = map(int, self._header.tolist())
            for _ in range(windows):
                answer(kind, window)
        self._header[0] = self._wrong(offset)
        dist.send(self._header, src)

    def _fill(self, offset: int) -> None:
        for buffer, pattern in zip(self._buffers, self._patterns, strict=True):
            torch.add(pattern, offset % 256, out=buffer)  # bytes wrap

    def _wrong(self, offset: int) -> int:
        """Return the number of wrong elements in the last messages."""
        wrong = 0
        for buffer, pattern in zip(self._buffers, self._patterns, strict=True):
            buffer.sub_(offset % 256)  # bytes wrap back
            for begin in range(0, len(buffer), BLOCK_BYTES):
                block = slice(begin, begin + BLOCK_BYTES)
                wrong += int((buffer[block] != pattern[block]).sum())
        return wrong


def _pattern(size: int, device: str) -> Tensor:
    period = torch.arange(PATTERN_PERIOD, dtype=torch.uint8, device=device)
    return period.repeat(-(-size // PATTERN_PERIOD))[:size]
