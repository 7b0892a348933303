"""The common start and the timed loop.

Without a common start a rank that is late makes the others' times longer, and it does not show
whose fault that is. On one machine every rank counts its arrivals in shared memory and looks at the
others' until all have come; that leaves the group alone and costs microseconds. How a rank waits
decides whether the backend is disturbed, as gloo's own threads need the cores too (all_reduce of
8 B, 128 B and 64 KiB between two ranks on two cores, Linux 6.18, 32 turns each): looking all the
time holds them up for a slice of the scheduler's, 3.7 ms instead of 0.1; offering the core at once
between two looks (sched_yield) makes the scheduler pass over the rank later, and 16 of 96 turns
stall so, where 3 of a loop without any common start do; naps let the core fall asleep, which takes
2 to 4 times as long. So a rank looks without a pause for 5 µs, within which the others usually
come, and offers its core then: 5 of 96, and the medians are those of the plain loop (1.02, 0.98 and
0.88 times). Looking for 20 µs makes 8 B 9 % slower. It sleeps only if it has to wait very long.

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

from distdemo.bench.records import Harness, Start
from distdemo.bench.statistics import median
from distdemo.launcher.clock import HOST, Clock, clock_of

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LINE = 8  # words of a cache line: two ranks never write into the same one
KEEN_S = 5e-6  # of looking without a pause
EAGER = 20_000  # looks after that before a rank begins to sleep between two
NAP_S = 50e-6
HEARTBEAT_S = 2.0  # between two words to the launcher that this rank still moves
TOKEN = 32  # bytes that tell our memory from another's at the same place
PROBES = 2000  # iterations that the loop's own cost is found with

# ---------------------------------------------------------------------------------- shared memory


class Page:
    """Memory that all ranks of one machine share, without a file that anybody could be left with.

    Rank 0 makes it (memfd_create: it has no name) and the others open it through
    ``/proc/PID/fd/NUMBER``, which the kernel allows to processes of the same user alone. When the
    last rank has gone, so has the memory, however the ranks ended.

    Attributes:
        words: Its bytes as signed 64-bit numbers; one is read or written at once, never in halves.
    """

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self._memory = memory
        self._buffer = memoryview(memory)[:size]
        self.words = self._buffer[: size // 8 * 8].cast("q")

    def close(self) -> None:
        """Give it back; the views can't be used any more. The other ranks keep theirs."""
        self.words.release()
        self._buffer.release()
        with suppress(BufferError):  # somebody holds a view: it goes with the process
            self._memory.close()


def shared_page(rank: Rank, place: str, size: int) -> Page | None:
    """Collective: memory that all ranks share, zeros at first.

    Args:
        rank: this rank of the world.
        place: a name that no other page of the world had.
        size: bytes.

    Returns:
        None on every rank where one of them can't have it: they live on several machines, in
        containers that don't see each other's processes, or on a system without memfd.
    """
    store = rank.store(f"page/{place}")
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
        rank.count(f"page/{place}/lacking", 1)
    rank.meet(f"page/{place}")
    if descriptor is not None:
        os.close(descriptor)
    if page is not None and rank.count(f"page/{place}/lacking"):
        page.close()
        return None
    return page


def _open_page(address: str, size: int) -> Page | None:
    """The memory of another rank; None if it isn't to be had, or isn't that one."""
    path, _, token = address.partition(" ")
    if not re.fullmatch(r"/proc/\d+/fd/\d+", path):  # whatever else the store says
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
    """Brings all ranks to a common start, and tells the launcher now and then that this one moves.

    Args:
        rank: this rank of the world.
        page: zeros, ``LINE`` words a rank; None: the ranks share none, and meet at a barrier.
    """

    def __init__(self, rank: Rank, page: Page | None) -> None:
        import torch.distributed as dist

        self.way = Start.BARRIER if page is None else Start.PAGE
        self._rank = rank
        self._words = None if page is None else page.words
        self._barrier = dist.barrier
        self._mine = rank.rank * LINE
        self._others = tuple(other * LINE for other in range(rank.world_size) if other != rank.rank)
        self._turn = 0
        self._due = perf_counter() + HEARTBEAT_S

    def meet(self) -> None:
        """Collective: return when all ranks have come, as nearly at the same moment as can be."""
        if perf_counter() > self._due:
            self._rank.tell(None)
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


def _wait(words: memoryview, other: int, turn: int) -> None:
    until = perf_counter() + KEEN_S
    while words[other] < turn and perf_counter() < until:
        pass
    looks = 0
    while words[other] < turn:
        looks += 1
        if looks < EAGER:
            os.sched_yield()
        else:
            time.sleep(NAP_S)


def common_start(rank: Rank) -> CommonStart:
    """Collective: the best one here."""
    return CommonStart(rank, shared_page(rank, "start", rank.world_size * LINE * 8))


# ------------------------------------------------------------------------------------- timed loop


@dataclass(frozen=True, slots=True)
class Times:
    """One rank's, an entry an iteration; seconds, the first two on the machine's monotonic clock.

    Attributes:
        arrived: when it came to the start.
        started: when it was let go.
        took: how long the call took.
        clock: what timed the call.
    """

    arrived: array[float]
    started: array[float]
    took: array[float]
    clock: str = HOST

    def __add__(self, more: Times) -> Times:
        """These, and then those."""
        return Times(
            self.arrived + more.arrived,
            self.started + more.started,
            self.took + more.took,
            more.clock,
        )

    @property
    def pace_s(self) -> float:
        """Seconds of an iteration, from the first arrival to the end of the last call."""
        count = len(self.took)
        return (self.started[-1] + self.took[-1] - self.arrived[0]) / count if count else 0.0


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block no garbage is collected."""
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
    meet: Callable[[], None],
    *,
    on_host: bool = False,
) -> Times:
    """Collective: make the calls, each from a common start.

    A look at the clock, the call, another look; nothing else. The lists that take the times are as
    long as they will be, and no garbage is collected meanwhile.

    Args:
        rank: this rank; its device decides what tells the time.
        call: returns when the operation is done (on a GPU: when it was queued).
        count: iterations.
        meet: brings all ranks to a common start.
        on_host: the host tells the time in any case: nothing is done on a GPU.
    """
    clock = Clock() if on_host else clock_of(rank.device)
    with undisturbed():
        return _loop(clock, call, count, meet)


def _loop(clock: Clock, call: Callable[[], object], count: int, meet: Callable[[], None]) -> Times:
    on_host = clock.name == HOST
    mark = perf_counter if on_host else clock.mark
    arrived, started = array("d", bytes(8 * count)), array("d", bytes(8 * count))
    begun: list[Any] = [None] * count
    ended: list[Any] = [None] * count
    for turn in range(count):
        if not on_host:
            clock.settle()  # the stream is idle at the start
        arrived[turn] = perf_counter()
        meet()
        started[turn] = perf_counter()
        first = mark()
        call()
        ended[turn] = mark()
        begun[turn] = first
    clock.settle()
    return Times(arrived, started, array("d", map(clock.between, begun, ended)), clock.name)


def harness() -> Harness:
    """What the loop costs an iteration, found with a call that does nothing, and no other rank."""

    def nothing() -> None:
        pass

    with undisturbed():
        began = perf_counter()
        times = _loop(Clock(), nothing, PROBES, nothing)
        whole = (perf_counter() - began) / PROBES
    inside = median(times.took)
    return Harness(inside, max(0.0, whole - inside))
