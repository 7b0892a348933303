"""bench links on every rank: its turns with each of the others.

The ranks whose turn it is not sleep (``baton``), so that they take neither cores nor wires from
those who measure. A link is measured with bare send and recv::

    src  ─ small ─▶ dst        src  ─ large ─▶ dst
    src  ◀─ small ─ dst        src  ─ large ─▶ dst      WINDOW of them
    latency: half of it        src  ◀─ small ─ dst      bandwidth: all of it over the whole time
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo.bench.linking import LinksSpec
from distdemo.bench.links.baton import baton
from distdemo.bench.links.schedule import (
    MANY_RANKS,
    Counts,
    Turn,
    counts,
    fixed_counts,
    turns,
    visit_seconds,
)
from distdemo.bench.summary import quantile

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

FAST = 0.1
"""Of the messages of a visit the fastest tenth counts, not the median: what else a machine does
delays most messages now and then, a slow link delays all of them always."""
BLOCK = 1 << 20  # bytes that are compared at once: a buffer may be most of the memory
SILENT = 2.0  # seconds of a visit after which the launcher is told that it goes on
PRIME = 251  # the pattern's period: no power of two, so that a shifted block shows


@dataclass(frozen=True, slots=True)
class Here:
    """The host that a rank lives on."""

    host: str


@dataclass(frozen=True, slots=True)
class Timed:
    """What the sender found in one visit.

    Attributes:
        src: the sender.
        dst: the receiver.
        lap: the round.
        latency: seconds of a small message one way: half of a round trip of the fastest tenth.
        bandwidth: bytes a second of a window of the fastest tenth.
    """

    src: int
    dst: int
    lap: int
    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Checked:
    """What the receiver found in one visit: how many bytes of the last messages were wrong."""

    src: int
    dst: int
    lap: int
    wrong: int


Said = Here | Timed | Checked | None
"""What ranks tell; None: this one is at work."""


def links(rank: Rank, spec: LinksSpec) -> None:
    """Collective: measure every pair, and tell what came of each visit as soon as it is over.

    Args:
        rank: this rank of the world.
        spec: what to send, how often.
    """
    rank.tell(Here(socket.gethostname()))
    mine, turn_of = _Ends(rank, spec), baton(rank)
    lap = -1
    for turn in turns(rank.world_size, spec.rounds):
        if rank.world_size <= MANY_RANKS or turn.lap > lap:
            rank.reach(_phase(turn, spec, rank.world_size))
        lap = turn.lap
        if rank.rank in (turn.first, turn.second):
            turn_of.wait(turn.number)
            for src, dst in turn.ways:
                mine.visit(src, dst, turn.lap)
            if rank.rank == turn.first:  # it got the last answer, so the other is done too
                turn_of.hand_on(turn.number + 1)
    turn_of.close()
    rank.reach("done")


def _phase(turn: Turn, spec: LinksSpec, world_size: int) -> str:
    lap = f"round {turn.lap + 1} of {spec.rounds}"
    return f"ranks {turn.first} and {turn.second}, {lap}" if world_size <= MANY_RANKS else lap


class _Ends:
    """This rank's end of all its links.

    Args:
        rank: this rank of the world.
        spec: what is sent.
    """

    def __init__(self, rank: Rank, spec: LinksSpec) -> None:
        self._rank = rank
        self._spec = spec
        self._patterns = [_pattern(size, rank.device) for size in (spec.small, spec.large)]
        self._small, self._large = (torch.empty_like(each) for each in self._patterns)
        self._counts = torch.zeros(3, dtype=torch.int64, device=rank.device)
        self._known: dict[int, tuple[float, float]] = {}  # seconds of small and large, by rank
        self._told = perf_counter()

    def visit(self, src: int, dst: int, lap: int) -> None:
        """Of the two ranks together: measure the link from one to the other."""
        self._told = perf_counter()
        if self._rank.rank == src:
            self._rank.tell(self._send(dst, lap))
        else:
            self._rank.tell(self._receive(src, lap))

    def _go_on(self) -> None:
        """Between two messages: tell now and then that there are more to come."""
        if perf_counter() - self._told > SILENT:
            self._rank.tell(None)
            self._told = perf_counter()

    # ---------------------------------------------------------------------------------- sending

    def _send(self, dst: int, lap: int) -> Timed:
        self._fill(_mark(self._rank.rank, dst, lap))
        if lap == 0:
            self._known[dst] = self._introduce(dst)
        planned = self._planned(dst)
        trips = sorted(self._small_ones(dst, planned))
        took = sorted(self._large_ones(dst, planned))
        self._announce(dst, 0, 0, 0)
        trip, window = quantile(trips, FAST), quantile(took, FAST)
        self._known[dst] = trip, window / planned.window
        bandwidth = planned.window * self._spec.large / window
        return Timed(self._rank.rank, dst, lap, trip / 2, bandwidth)

    def _small_ones(self, dst: int, planned: Counts) -> list[float]:
        took: list[float] = []
        until = perf_counter() + planned.seconds
        for batch in planned.batches():
            if took and perf_counter() > until:
                break
            self._announce(dst, batch, 0, 0)
            took += [self._there_and_back(dst) for _ in range(batch)]
            self._go_on()
        return took

    def _large_ones(self, dst: int, planned: Counts) -> list[float]:
        took: list[float] = []
        until = perf_counter() + planned.seconds
        for _ in range(planned.windows):
            if took and perf_counter() > until:
                break
            self._announce(dst, 0, 1, planned.window)
            took.append(self._window(dst, planned.window))
            self._go_on()
        return took

    def _announce(self, dst: int, *what: int) -> None:
        """What comes next: so many small messages, windows, large messages in one; or nothing."""
        self._counts.copy_(torch.tensor(what))
        dist.send(self._counts, dst)

    def _introduce(self, dst: int) -> tuple[float, float]:
        """What is not timed: backends connect when two ranks first talk. Seconds of each kind."""
        for _ in range(2):
            self._there_and_back(dst)
        return self._there_and_back(dst), self._window(dst, 1)

    def _planned(self, dst: int) -> Counts:
        spec = self._spec
        if spec.iters is not None:
            return fixed_counts(spec.iters)
        seconds = visit_seconds(spec.budget, self._rank.world_size, spec.rounds)
        return counts(*self._known[dst], seconds)

    def _there_and_back(self, dst: int) -> float:
        began = perf_counter()
        dist.send(self._small, dst)
        dist.recv(self._small, dst)
        self._rank.synchronize()
        return perf_counter() - began

    def _window(self, dst: int, count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            dist.send(self._large, dst)
        dist.recv(self._small, dst)
        self._rank.synchronize()
        return perf_counter() - began

    # -------------------------------------------------------------------------------- receiving

    def _receive(self, src: int, lap: int) -> Checked:
        mark = _mark(src, self._rank.rank, lap)
        self._fill(mark + 1)  # wrong everywhere, until it is received
        if lap == 0:
            for _ in range(3):
                self._answer(src)
            self._take(src, 1)
        while any(announced := self._hear(src)):
            small, windows, window = announced
            for _ in range(small):
                self._answer(src)
            for _ in range(windows):
                self._take(src, window)
        return Checked(src, self._rank.rank, lap, self._wrong(mark))

    def _hear(self, src: int) -> tuple[int, int, int]:
        dist.recv(self._counts, src)
        small, windows, window = map(int, self._counts.tolist())
        return small, windows, window

    def _answer(self, src: int) -> None:
        dist.recv(self._small, src)
        dist.send(self._small, src)

    def _take(self, src: int, count: int) -> None:
        for _ in range(count):
            dist.recv(self._large, src)
        dist.send(self._small, src)

    # ------------------------------------------------------------------------------------- data

    def _fill(self, mark: int) -> None:
        for held, pattern in zip((self._small, self._large), self._patterns, strict=True):
            torch.add(pattern, mark % 256, out=held)  # bytes wrap

    def _wrong(self, mark: int) -> int:
        wrong = 0
        for held, pattern in zip((self._small, self._large), self._patterns, strict=True):
            held.sub_(mark % 256)  # bytes wrap back
            if torch.equal(held, pattern):
                continue
            for at in range(0, len(held), BLOCK):
                wrong += int((held[at : at + BLOCK] != pattern[at : at + BLOCK]).sum())
        return wrong


def _pattern(size: int, device: str) -> Tensor:
    period = torch.arange(PRIME, dtype=torch.uint8, device=device)
    return period.repeat(-(-size // PRIME))[:size]


def _mark(src: int, dst: int, lap: int) -> int:
    """A number that tells the data of one visit from that of the others of these ranks."""
    return 31 * src + 7 * dst + 101 * lap
