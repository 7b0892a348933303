"""The loop around ``dist.all_reduce`` that a person writes who wants to know how long it takes.

Two ranks over gloo, warmed up; each call between two looks at the clock, nothing else in the loop.
An iteration took as long as on the rank where it took longest. Reads orders from standard input,
``BYTES ITERATIONS WARMUP REST`` a line, starts a fresh world for each, and prints its times as
JSON, in seconds.

REST is 0 in the loop as everybody writes it. There a call begins while the threads of gloo are
still busy with the end of the one before, and pays for that. Otherwise each rank gives its core to
whoever wants it for so many µs before it calls, with no word to the other: so begins an all_reduce
in a program that computes in between.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2
PATIENCE = 120  # seconds until a world is given up


def loop(rank: int, folder: str, size: int, iterations: int, warmup: int, rest: int) -> None:  # noqa: PLR0913, PLR0917 - as a script has it
    """One rank: join, warm up, time, and leave the times in a file."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    tensor = torch.ones(size // 4)
    for _ in range(warmup):
        dist.all_reduce(tensor)
    times = []
    for _ in range(iterations):
        awake = time.perf_counter() + 1e-6 * rest
        while rest and time.perf_counter() < awake:
            os.sched_yield()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - began)
    Path(folder, str(rank)).write_text(json.dumps(times))
    dist.destroy_process_group()


def world(size: int, iterations: int, warmup: int, rest: int) -> list[float]:
    """The time of each iteration, the slowest rank's, in a fresh world.

    Raises:
        RuntimeError: a rank failed, or hangs.
    """
    context = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        order = folder, size, iterations, warmup, rest
        ranks = [context.Process(target=loop, args=(rank, *order)) for rank in range(RANKS)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join(PATIENCE)
        if any(each.exitcode != 0 for each in ranks):
            for each in ranks:
                each.kill()
            raise RuntimeError(f"ranks ended with {[each.exitcode for each in ranks]}")
        found = [json.loads(Path(folder, str(rank)).read_text()) for rank in range(RANKS)]
    return [max(times) for times in zip(*found, strict=True)]


def main() -> None:
    """Carry out the orders."""
    for line in sys.stdin:
        size, iterations, warmup, rest = map(int, line.split())
        print(json.dumps(world(size, iterations, warmup, rest)), flush=True)


if __name__ == "__main__":
    main()
