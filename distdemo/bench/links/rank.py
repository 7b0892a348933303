"""bench links on every rank: its turns with each of the others, one pair at a time.

All other ranks sleep meanwhile, so that they take neither cores nor network from those two.
A link is measured with bare send and recv::

    src  ─ small ─▶ dst        src  ─ large ─▶ dst
    src  ◀─ small ─ dst        src  ─ large ─▶ dst      WINDOW of them
    latency: half of it        src  ◀─ small ─ dst      bandwidth: all of it over the whole time
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo.bench.links.records import LinksSpec
from distdemo.bench.statistics import quantile
from distdemo.bench.timing import shared_page

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

MANY_RANKS = 16  # beyond, a phase for each turn would keep the launcher busy, and so the cores
MOST_SMALL, MOST_LARGE = 200, 64  # timed messages in a visit: more make a figure no better
FEWEST_SMALL = 5
BATCH = 20  # small messages between two looks at whether the visit's time is over
WINDOW = 4  # large messages that are sent before the receiver says that it has them all
FAST = 0.1
"""Of the messages of a visit the fastest tenth counts, not the median: what else a machine does
delays most messages now and then, a slow link delays all of them always."""
BLOCK = 1 << 20  # bytes that are compared at once: a buffer may be most of the memory
SILENT = 2.0  # seconds of a visit between two signs of progress
PRIME = 251  # the pattern's period: not a power of two, so that a shifted block shows
NAP, LONGEST_NAP = 0.001, 0.05  # seconds for each turn that is still to pass, and in all


@dataclass(frozen=True, slots=True)
class Visited:
    """What the two ranks of one visit found; the sender tells it.

    Attributes:
        host: of the sender.
        latency_s: of a small message one way: half of a round trip of the fastest tenth.
        bandwidth_bytes_per_s: of a window of the fastest tenth.
        wrong: elements of the last messages that arrived wrong.
    """

    src: int
    dst: int
    round: int
    host: str
    latency_s: float
    bandwidth_bytes_per_s: float
    wrong: int


def measure(rank: Rank, spec: LinksSpec) -> None:
    """Collective: measure every pair, and tell of each visit as soon as it is over."""
    ends, turn = _Ends(rank, spec), _Turn(rank)
    phase = ""
    for number, (lap, first, second) in enumerate(turns(rank.world_size, spec.rounds)):
        now = f"round {lap + 1} of {spec.rounds}"
        if rank.world_size <= MANY_RANKS:
            now = f"ranks {first} and {second}, {now}"
        if now != phase:
            rank.reach(now)
        phase = now
        if rank.rank in (first, second):
            turn.wait(number)
            ends.visit(first, second, lap)
            ends.visit(second, first, lap)
            if rank.rank == first:  # it got the last answer, so the other is done too
                turn.hand_on(number + 1)
    turn.close()
    rank.reach("done")


def turns(world_size: int, rounds: int) -> Iterator[tuple[int, int, int]]:
    """Round and the two ranks whose turn it is.

    Rounds go over all pairs, rather than each pair having its rounds at once: so a disturbance that
    passes meets a link once, and each link is measured at several times.
    """
    return ((lap, *pair) for lap in range(rounds) for pair in combinations(range(world_size), 2))


class _Turn:
    """Whose turn it is: a number in memory that the ranks share, else a key in the world's store.

    A store in a file is looked into a hundred times a second by every rank that waits, and each of
    thousands of turns begins up to 10 ms late.
    """

    def __init__(self, rank: Rank) -> None:
        self._page = shared_page(rank, "links", 8)
        self._store = rank.store("links")

    def wait(self, number: int) -> None:
        """Return when the turn of this number may begin."""
        if self._page is None:
            if number:
                self._store.wait([str(number)])
            return
        while (ahead := number - self._page.words[0]) > 0:
            time.sleep(min(LONGEST_NAP, NAP * ahead))

    def hand_on(self, number: int) -> None:
        """The turn of this number may begin."""
        if self._page is None:
            self._store.set(str(number), "")
        else:
            self._page.words[0] = number

    def close(self) -> None:
        """Give the memory back."""
        if self._page is not None:
            self._page.close()


class _Ends:
    """This rank's end of all its links. Of what it sends and receives 0 is small and 1 is large."""

    def __init__(self, rank: Rank, spec: LinksSpec) -> None:
        self._rank = rank
        self._spec = spec
        sizes = spec.small_bytes, spec.large_bytes
        self._patterns = [_pattern(size, rank.device) for size in sizes]
        self._held = [torch.empty_like(each) for each in self._patterns]
        self._next = torch.zeros(3, dtype=torch.int64, device=rank.device)
        self._known: dict[int, tuple[float, float]] = {}  # seconds of small and large, by rank
        self._reported = perf_counter()

    def visit(self, src: int, dst: int, lap: int) -> None:
        """Of the two ranks together: measure the link from one to the other."""
        self._reported = perf_counter()
        mark = 31 * src + 7 * dst + 101 * lap  # the data of this visit differs from that of others
        if self._rank.rank == src:
            self._rank.tell(self._send(dst, lap, mark))
        else:
            self._receive(src, lap, mark)

    def _send(self, dst: int, lap: int, mark: int) -> Visited:
        self._fill(mark)
        if lap == 0:  # not timed: backends connect when two ranks first talk
            for _ in range(2):
                self._there_and_back(dst, 0, 1)
            self._known[dst] = self._there_and_back(dst, 0, 1), self._there_and_back(dst, 1, 1)
        trip_s, large_s = self._known[dst]
        half = self._spec.budget_s / max(1, self._spec.visits) / 2  # for each kind of message
        small = min(MOST_SMALL, max(FEWEST_SMALL, int(half / max(trip_s, 1e-9))))
        large = min(MOST_LARGE, max(1, int(half / max(large_s, 1e-9))))
        sent = min(WINDOW, large)
        trip = self._fastest(dst, 0, 1, times=small, batch=BATCH, limit_s=half)
        window = self._fastest(dst, 1, sent, times=-(-large // sent), batch=1, limit_s=half)
        self._announce(dst, 0, 0, 0)
        self._known[dst] = trip, window / sent
        bandwidth = sent * self._spec.large_bytes / window
        dist.recv(self._next, dst)
        wrong, host = int(self._next[0]), socket.gethostname()
        return Visited(self._rank.rank, dst, lap, host, trip / 2, bandwidth, wrong)

    def _fastest(
        self, dst: int, kind: int, window: int, *, times: int, batch: int, limit_s: float
    ) -> float:
        """Seconds of the fastest tenth of the windows of this kind that there is time for.

        Args:
            dst: the other rank.
            kind: of message.
            window: messages in one.
            times: that one is sent.
            batch: of them between two looks at the clock.
            limit_s: after which no further batch is begun.
        """
        took: list[float] = []
        until = perf_counter() + limit_s
        while len(took) < times:
            now = min(batch, times - len(took))
            self._announce(dst, kind, window, now)
            took += [self._there_and_back(dst, kind, window) for _ in range(now)]
            if perf_counter() - self._reported > SILENT:
                self._rank.tell(None)
                self._reported = perf_counter()
            if perf_counter() > until:
                break
        return quantile(sorted(took), FAST)

    def _announce(self, dst: int, *what: int) -> None:
        """What comes next: the kind of message, how many in a window, how many windows; or 0."""
        self._next.copy_(torch.tensor(what))
        dist.send(self._next, dst)

    def _there_and_back(self, dst: int, kind: int, window: int) -> float:
        """Seconds for a window of messages, and the small one that the other rank answers with."""
        began = perf_counter()
        for _ in range(window):
            dist.send(self._held[kind], dst)
        dist.recv(self._held[0], dst)
        self._rank.synchronize()
        return perf_counter() - began

    def _receive(self, src: int, lap: int, mark: int) -> None:
        """The other side of ``_send``."""

        def answer(kind: int, window: int) -> None:
            for _ in range(window):
                dist.recv(self._held[kind], src)
            dist.send(self._held[0], src)

        self._fill(mark + 1)  # wrong everywhere, until it is received
        if lap == 0:
            for kind in (0, 0, 0, 1):
                answer(kind, 1)
        while True:
            dist.recv(self._next, src)
            kind, window, times = map(int, self._next.tolist())
            if not times:
                break
            for _ in range(times):
                answer(kind, window)
        self._next[0] = self._wrong(mark)
        dist.send(self._next, src)

    def _fill(self, mark: int) -> None:
        for held, pattern in zip(self._held, self._patterns, strict=True):
            torch.add(pattern, mark % 256, out=held)  # bytes wrap

    def _wrong(self, mark: int) -> int:
        """Number of elements of the last messages that are wrong."""
        wrong = 0
        for held, pattern in zip(self._held, self._patterns, strict=True):
            held.sub_(mark % 256)  # bytes wrap back
            for at in range(0, len(held), BLOCK):
                wrong += int((held[at : at + BLOCK] != pattern[at : at + BLOCK]).sum())
        return wrong


def _pattern(size: int, device: str) -> Tensor:
    period = torch.arange(PRIME, dtype=torch.uint8, device=device)
    return period.repeat(-(-size // PRIME))[:size]
