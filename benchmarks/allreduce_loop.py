"""Typical hand-written timing loop around ``dist.all_reduce``.

Two ranks over gloo, after a warm-up; the loop only times each call. The time of an iteration is
that of the slowest rank. Reads one job per line from standard input, ``BYTES ITERATIONS WARMUP
REST``, starts a fresh world for each, and prints its times in seconds as JSON.

REST is 0 in the usual loop: a call then starts while gloo's threads are still finishing the
previous one, and is slower for it. Otherwise each rank yields its core for REST µs before each
call, without synchronization, like a program that computes between two calls.
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
PATIENCE = 120  # seconds until a world is stopped


def loop(rank: int, folder: str, size: int, iterations: int, warmup: int, rest: int) -> None:
    """Join as one rank, warm up, measure, and write the times to a file."""
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
    """Return the slowest rank's time of each iteration in a fresh world.

    Raises:
        RuntimeError: A rank failed or hung.
    """
    context = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        job = folder, size, iterations, warmup, rest
        ranks = [context.Process(target=loop, args=(rank, *job)) for rank in range(RANKS)]
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
    """Run the jobs from standard input."""
    for line in sys.stdin:
        size, iterations, warmup, rest = map(int, line.split())
        print(json.dumps(world(size, iterations, warmup, rest)), flush=True)


if __name__ == "__main__":
    main()
