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
import secrets
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.clock import HOST, Clock, clock_of
from distdemo.launcher.process_tree import shared_file
from distdemo.platform import system

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LINE = 8  # words per cache line: no two ranks write to the same one
SPIN_S = 5e-6  # seconds of polling without a pause
YIELDS = 20_000  # polls with a yield after that, before the rank sleeps between polls
SLEEP_S = 50e-6
HEARTBEAT_S = 2.0  # between two heartbeats to the launcher
WORD = 8  # bytes
TOKEN = 32  # bytes that identify shared memory

# ---------------------------------------------------------------------------------- shared memory


def shared_words(rank: Rank, name: str, count: int) -> memoryview | None:
    """Return zeroed memory that all ranks of one machine share, as signed words. Collective.

    Rank 0 creates it; the other ranks open it, which only processes of the same user can. The
    kernel frees it when the last rank exits, for whatever reason. Reads and writes of a word are
    atomic.

    Args:
        rank: This rank of the world.
        name: Name, unique in the world.
        count: Number of words.

    Returns:
        The memory; None on every rank if one can't open it: the ranks are on several machines, or
        in containers that don't see each other's processes or temporary files.
    """
    store = rank.store(f"words/{name}")
    size = count * WORD
    memory: mmap.mmap | None = None
    with ExitStack() as until_opened:
        if rank.rank == 0:
            where = ""
            with suppress(OSError, UsageError):  # too little memory
                file = until_opened.enter_context(shared_file("words"))
                os.ftruncate(file.fd, size + TOKEN)
                memory = mmap.mmap(file.fd, size + TOKEN)
                memory[size:] = secrets.token_bytes(TOKEN)
                where = f"{file.path} {memory[size:].hex()}"
            store.set("where", where)
        else:
            memory = open_memory(bytes(store.get("where")).decode(), size)
        if memory is None:
            rank.count(f"words/{name}/lacking", 1)
        rank.barrier(f"words/{name}")
    if memory is None or rank.count(f"words/{name}/lacking"):
        return None
    return memoryview(memory)[:size].cast("q")


def open_memory(where: str, size: int) -> mmap.mmap | None:
    """Return rank 0's memory; None if it can't be opened, or has a different size or token."""
    with suppress(OSError, ValueError):  # also if it isn't a path and a token
        path, _, token = where.rpartition(" ")
        with system.open_shared(path) as file:
            if os.fstat(file.fileno()).st_size == size + TOKEN:
                memory = mmap.mmap(file.fileno(), size + TOKEN)
                if secrets.compare_digest(memory[size:].hex(), token):
                    return memory
    return None


# ----------------------------------------------------------------------------------- common start


class CommonStart:
    """Common start of all ranks, with heartbeats to the launcher. Collective.

    It goes through shared memory if possible, else through the group's barrier.

    Args:
        rank: This rank of the world.
    """

    def __init__(self, rank: Rank) -> None:
        import torch.distributed as dist

        self._rank = rank
        self._words = shared_words(rank, "start", rank.world_size * LINE)
        self._barrier = dist.barrier
        self._mine = rank.rank * LINE
        self._others = tuple(other * LINE for other in range(rank.world_size) if other != rank.rank)
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


# ------------------------------------------------------------------------------------- timed loop


def timed(
    rank: Rank,
    call: Callable[[], object],
    count: int,
    align: Callable[[], None],
    *,
    on_host: bool = False,
) -> array[float]:
    """Return the seconds of each call, each from a common start. Collective.

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
    on_host = clock.name == HOST
    mark = perf_counter if on_host else clock.mark
    begun: list[Any] = [None] * count
    ended: list[Any] = [None] * count
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(count):
            if not on_host:
                clock.settle()  # the stream is idle at the start
            align()
            first = mark()
            call()
            ended[turn] = mark()
            begun[turn] = first
        clock.settle()
    finally:
        if was_enabled:
            gc.enable()
    return array("d", map(clock.between, begun, ended))
