"""The common start and the timed loop.

Without a common start, a late rank makes the other ranks' times longer and the times don't show
which rank it was. On one machine every rank counts its arrivals in shared memory and polls the
other counters until all ranks have arrived; this bypasses the group and costs microseconds. The
way a rank waits can disturb the backend, because gloo's own threads need the cores too (all_reduce
of 8 B, 128 B and 64 KiB between two ranks on two cores, Linux 6.18, 32 turns each). Spinning
blocks them for a scheduler slice, 3.7 ms instead of 0.1. Yielding at once (sched_yield) makes the
scheduler skip the rank later: 16 of 96 turns stall, compared with 3 in a loop without a common
start. Sleeping idles the core, which takes 2 to 4 times as long. So a rank spins for 5 µs, within
which the other ranks usually arrive, and then yields: 5 of 96 turns stall, and the medians match
the plain loop's (1.02, 0.98 and 0.88 times). Spinning for 20 µs makes 8 B 9 % slower. A rank
sleeps only after a very long wait.

Across machines the common start is the group's own barrier.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import secrets
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from distdemo.launcher.clock import HOST, Clock, clock_of
from distdemo.measure.records import Harness, Start
from distdemo.measure.statistics import median

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LINE = 8  # words per cache line: no two ranks write to the same one
SPIN_S = 5e-6  # seconds of polling without a pause
YIELDS = 20_000  # polls with a yield after that, before the rank sleeps between polls
SLEEP_S = 50e-6
HEARTBEAT_S = 2.0  # between two heartbeats to the launcher
TOKEN = 32  # bytes that identify the page
PROBES = 2000  # iterations that measure the loop's own cost

# ---------------------------------------------------------------------------------- shared memory


class Page:
    """Memory shared by all ranks of one machine, without a file that could be left behind.

    Rank 0 creates it without a name (memfd_create). The other ranks open it through
    ``/proc/PID/fd/NUMBER``, which the kernel allows only for processes of the same user. The kernel
    frees it when the last rank exits, for whatever reason.

    Attributes:
        words: Content as signed 64-bit numbers; reads and writes of one are atomic.
    """

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self._memory = memory
        self._buffer = memoryview(memory)[:size]
        self.words = self._buffer[: size // 8 * 8].cast("q")

    def close(self) -> None:
        """Release this rank's mapping and its views; other ranks keep theirs."""
        self.words.release()
        self._buffer.release()
        with suppress(BufferError):  # a view is still in use: freed at exit
            self._memory.close()


def shared_page(rank: Rank, name: str, size: int) -> Page | None:
    """Return zeroed memory that all ranks share. Collective.

    Args:
        rank: This rank of the world.
        name: Name, unique among the pages of the world.
        size: Size in bytes.

    Returns:
        The page; None on every rank if one can't open it: the ranks are on several machines, in
        containers that don't see each other's processes, or on a system without memfd.
    """
    store = rank.store(f"page/{name}")
    descriptor: int | None = None
    page: Page | None = None
    if rank.rank == 0:
        token, address = secrets.token_bytes(TOKEN), ""
        with suppress(OSError, AttributeError):  # no memfd here, or too little memory
            descriptor = os.memfd_create("distdemo", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size + TOKEN)
            memory = mmap.mmap(descriptor, size + TOKEN)
            memory[size:] = token
            page = Page(memory, size)
            address = f"/proc/{os.getpid()}/fd/{descriptor} {token.hex()}"
        store.set("where", address)
    else:
        page = _open_page(bytes(store.get("where")).decode(), size)
    if page is None:
        rank.count(f"page/{name}/lacking", 1)
    rank.barrier(f"page/{name}")
    if descriptor is not None:
        os.close(descriptor)
    if page is not None and rank.count(f"page/{name}/lacking"):
        page.close()
        return None
    return page


def _open_page(address: str, size: int) -> Page | None:
    """Return rank 0's page; None if it can't be opened or has a different token."""
    path, _, token = address.partition(" ")
    if not re.fullmatch(r"/proc/\d+/fd/\d+", path):  # never open another path
        return None
    with suppress(OSError), Path(path).open("r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size == size + TOKEN:
            memory = mmap.mmap(file.fileno(), size + TOKEN)
            if secrets.compare_digest(memory[size:].hex(), token):
                return Page(memory, size)
            memory.close()
    return None


# ----------------------------------------------------------------------------------- common start


class CommonStart:
    """Common start of all ranks, with heartbeats to the launcher.

    Args:
        rank: This rank of the world.
        page: Zeroed page with ``LINE`` words per rank and ``LINE`` more; None to use the
            group's barrier.
    """

    def __init__(self, rank: Rank, page: Page | None) -> None:
        import torch.distributed as dist

        self.way = Start.BARRIER if page is None else Start.PAGE
        self._rank = rank
        self._words = None if page is None else page.words
        self._barrier = dist.barrier
        self._mine = rank.rank * LINE
        self._others = tuple(other * LINE for other in range(rank.world_size) if other != rank.rank)
        self._decision = rank.world_size * LINE  # index of rank 0's word for `agree`
        self._decisions = 0
        self._turn = 0
        self._due = perf_counter() + HEARTBEAT_S

    def align(self) -> None:
        """Return when all ranks have arrived, as simultaneously as possible. Collective."""
        if perf_counter() > self._due:
            self._rank.send(None)
            self._due = perf_counter() + HEARTBEAT_S
        words = self._words
        if words is None:
            self._barrier()
            return
        self._turn += 1
        turn = words[self._mine] = self._turn
        for other in self._others:
            if words[other] < turn:
                _wait(words, other, turn)

    def agree(self, decision: bool) -> bool:
        """Return rank 0's decision on every rank. Collective."""
        words = self._words
        self._decisions += 1
        if words is None:
            store, name = self._rank.store("decisions"), str(self._decisions)
            if self._rank.rank == 0:
                store.set(name, str(int(decision)))
            return bool(int(store.get(name)))
        if self._rank.rank == 0:
            words[self._decision] = decision
        self.align()
        agreed = bool(words[self._decision])
        self.align()  # all have read it before it changes
        return agreed


def _wait(words: memoryview, other: int, turn: int) -> None:
    until = perf_counter() + SPIN_S
    while words[other] < turn and perf_counter() < until:
        pass
    polls = 0
    while words[other] < turn:
        polls += 1
        if polls < YIELDS:
            os.sched_yield()
        else:
            time.sleep(SLEEP_S)


def common_start(rank: Rank) -> CommonStart:
    """Return a common start, through shared memory if possible. Collective."""
    return CommonStart(rank, shared_page(rank, "start", (rank.world_size + 1) * LINE * 8))


# ------------------------------------------------------------------------------------- timed loop


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one rank in seconds, one per iteration.

    Attributes:
        arrived: Times of arrival at the start, on the machine's monotonic clock.
        started: Times of release from the start, on the same clock.
        took: Duration of each call.
        clock: Clock that timed the calls.
    """

    arrived: array[float]
    started: array[float]
    took: array[float]
    clock: str = HOST

    def __add__(self, more: Times) -> Times:
        """Return both, in order."""
        return Times(
            self.arrived + more.arrived,
            self.started + more.started,
            self.took + more.took,
            more.clock,
        )

    @property
    def pace_s(self) -> float:
        """Seconds per iteration, from the first arrival to the end of the last call."""
        count = len(self.took)
        return (self.started[-1] + self.took[-1] - self.arrived[0]) / count if count else 0.0


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable garbage collection within the block."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def timed(
    rank: Rank,
    call: Callable[[], object],
    count: int,
    align: Callable[[], None],
    *,
    on_host: bool = False,
) -> Times:
    """Time the calls, each from a common start. Collective.

    Nothing happens between the two clock readings but the call. The lists of times are allocated
    before, and garbage collection is off.

    Args:
        rank: This rank; its device determines the clock.
        call: Operation; returns when it is done (on a GPU: when it is queued).
        count: Number of iterations.
        align: Common start of all ranks.
        on_host: True to use the host's clock on any device, for calls without work on a GPU.
    """
    clock = Clock() if on_host else clock_of(rank.device)
    with undisturbed():
        return _loop(clock, call, count, align)


def _loop(clock: Clock, call: Callable[[], object], count: int, align: Callable[[], None]) -> Times:
    on_host = clock.name == HOST
    mark = perf_counter if on_host else clock.mark
    arrived, started = array("d", bytes(8 * count)), array("d", bytes(8 * count))
    begun: list[Any] = [None] * count
    ended: list[Any] = [None] * count
    for turn in range(count):
        if not on_host:
            clock.settle()  # the stream is idle at the start
        arrived[turn] = perf_counter()
        align()
        started[turn] = perf_counter()
        first = mark()
        call()
        ended[turn] = mark()
        begun[turn] = first
    clock.settle()
    return Times(arrived, started, array("d", map(clock.between, begun, ended)), clock.name)


def harness() -> Harness:
    """Return the loop's overhead per iteration, measured with an empty call and no other rank."""

    def nothing() -> None:
        pass

    with undisturbed():
        began = perf_counter()
        times = _loop(Clock(), nothing, PROBES, nothing)
        whole = (perf_counter() - began) / PROBES
    inside = median(times.took)
    return Harness(inside, max(0.0, whole - inside))
