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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo.bench.links.records import LinksSpec
from distdemo.measure.statistics import quantile
from distdemo.measure.timing import shared_page

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

MANY_RANKS = 16  # with more, a phase per turn would keep the launcher and so the cores busy
MOST_SMALL, MOST_LARGE = 200, 64  # timed messages per sample: more don't improve it
FEWEST_SMALL = 5
BATCH = 20  # small messages between two checks of the time limit
WINDOW = 4  # large messages sent before the receiver acknowledges them
FAST = 0.1
"""Share of the fastest messages that determines a sample, rather than the median: other programs
sometimes delay most messages, while a slow link always delays all of them."""
BLOCK = 1 << 20  # bytes compared at once, because a buffer may take most of the memory
HEARTBEAT_S = 2.0  # between two heartbeats during a sample
PRIME = 251  # period of the pattern: not a power of two, so that shifted blocks are detected
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


def measure(rank: Rank, spec: LinksSpec) -> None:
    """Measure every pair and send each sample when it is complete. Collective."""
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
            ends.measure(first, second, lap)
            ends.measure(second, first, lap)
            if rank.rank == first:  # it received the last answer, so the other rank is done too
                turn.pass_to(number + 1)
    turn.close()
    rank.reach("done")


def turns(world_size: int, rounds: int) -> Iterator[tuple[int, int, int]]:
    """Yield the round and the two ranks of each turn.

    Every round covers all pairs, so each link is measured at several times and a short disturbance
    affects it only once.
    """
    return ((lap, *pair) for lap in range(rounds) for pair in combinations(range(world_size), 2))


class _Turn:
    """Number of the current turn: in shared memory if possible, else in the world's store.

    Every waiting rank polls a file store a hundred times per second, and each of thousands of turns
    starts up to 10 ms late.
    """

    def __init__(self, rank: Rank) -> None:
        self._page = shared_page(rank, "links", 8)
        self._store = rank.store("links")

    def wait(self, number: int) -> None:
        """Return when the turn with this number may start."""
        if self._page is None:
            if number:
                self._store.wait([str(number)])
            return
        while (ahead := number - self._page.words[0]) > 0:
            time.sleep(min(LONGEST_SLEEP_S, SLEEP_S * ahead))

    def pass_to(self, number: int) -> None:
        """Start the turn with this number."""
        if self._page is None:
            self._store.set(str(number), "")
        else:
            self._page.words[0] = number

    def close(self) -> None:
        """Release the shared memory."""
        if self._page is not None:
            self._page.close()


class _Ends:
    """This rank's end of all its links. Kinds of messages: 0 is small, 1 is large."""

    def __init__(self, rank: Rank, spec: LinksSpec) -> None:
        self._rank = rank
        self._spec = spec
        sizes = spec.small_bytes, spec.large_bytes
        self._patterns = [_pattern(size, rank.device) for size in sizes]
        self._held = [torch.empty_like(each) for each in self._patterns]
        self._next = torch.zeros(3, dtype=torch.int64, device=rank.device)
        self._known: dict[int, tuple[float, float]] = {}  # seconds of small and large, by rank
        self._reported = perf_counter()

    def measure(self, src: int, dst: int, lap: int) -> None:
        """Measure the link from src to dst; both ranks call this."""
        self._reported = perf_counter()
        mark = 31 * src + 7 * dst + 101 * lap  # so that the data differs between samples
        if self._rank.rank == src:
            self._rank.send(self._send(dst, lap, mark))
        else:
            self._receive(src, lap, mark)

    def _send(self, dst: int, lap: int, mark: int) -> LinkSample:
        self._fill(mark)
        if lap == 0:  # not timed: backends connect at the first message
            for _ in range(2):
                self._there_and_back(dst, 0, 1)
            self._known[dst] = self._there_and_back(dst, 0, 1), self._there_and_back(dst, 1, 1)
        trip_s, large_s = self._known[dst]
        half = self._spec.budget_s / max(1, self._spec.measurements) / 2  # per kind of message
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
        return LinkSample(self._rank.rank, dst, lap, host, trip / 2, bandwidth, wrong)

    def _fastest(
        self, dst: int, kind: int, window: int, *, times: int, batch: int, limit_s: float
    ) -> float:
        """Return the seconds per window in the fastest tenth of the windows.

        Args:
            dst: Receiving rank.
            kind: Kind of message.
            window: Messages per window.
            times: Largest number of windows.
            batch: Windows between two checks of the clock.
            limit_s: Seconds after which no further batch starts.
        """
        took: list[float] = []
        until = perf_counter() + limit_s
        while len(took) < times:
            now = min(batch, times - len(took))
            self._announce(dst, kind, window, now)
            took += [self._there_and_back(dst, kind, window) for _ in range(now)]
            if perf_counter() - self._reported > HEARTBEAT_S:
                self._rank.send(None)
                self._reported = perf_counter()
            if perf_counter() > until:
                break
        return quantile(sorted(took), FAST)

    def _announce(self, dst: int, *what: int) -> None:
        """Announce the kind of message, messages per window and number of windows; 0 to stop."""
        self._next.copy_(torch.tensor(what))
        dist.send(self._next, dst)

    def _there_and_back(self, dst: int, kind: int, window: int) -> float:
        """Return the seconds for a window of messages and the other rank's small answer."""
        began = perf_counter()
        for _ in range(window):
            dist.send(self._held[kind], dst)
        dist.recv(self._held[0], dst)
        self._rank.synchronize()
        return perf_counter() - began

    def _receive(self, src: int, lap: int, mark: int) -> None:
        """Answer the messages of ``_send``."""

        def answer(kind: int, window: int) -> None:
            for _ in range(window):
                dist.recv(self._held[kind], src)
            dist.send(self._held[0], src)

        self._fill(mark + 1)  # wrong everywhere until received
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
        """Return the number of wrong elements in the last messages."""
        wrong = 0
        for held, pattern in zip(self._held, self._patterns, strict=True):
            held.sub_(mark % 256)  # bytes wrap back
            for begin in range(0, len(held), BLOCK):
                block = slice(begin, begin + BLOCK)
                wrong += int((held[block] != pattern[block]).sum())
        return wrong


def _pattern(size: int, device: str) -> Tensor:
    period = torch.arange(PRIME, dtype=torch.uint8, device=device)
    return period.repeat(-(-size // PRIME))[:size]
