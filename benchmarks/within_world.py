"""Compare the timed loop of ``distdemo bench`` with hand-written loops in the same worlds.

Two equal worlds differ by far more than the expected effect, depending on the cores of their
threads. Within one world all loops have the same cores, so they alternate there in blocks, and
each world gives one ratio of medians. The result is the median of many worlds' ratios.

The loop that rests before each call, as ``bench`` does while its ranks synchronize, must give the
same time. The one that calls back to back gives more or less, depending on gloo's threads after
the previous call: they may still be working, or still be awake. ``bench`` must not be slower.

The call and its buffers are created, bound and timed by the code of ``bench``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from rounds import Result, alternate, compared, in_words, ratios

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

ASKED = 0.05  # allowed difference
REST_S = 5e-6
WORLDS = 31
BLOCKS = 6  # blocks of each loop per world
SETTLING = 2  # ignored iterations at the start of a block
SIZES = {8: 300, 1 << 16: 100, 1 << 20: 30, 1 << 24: 6}
"""Timed iterations per world, by bytes."""


def loops(rank: Rank, size: int) -> dict[str, Callable[[int], Sequence[float]]]:
    """Return the loops on a rank: functions from a number of iterations to their times."""
    from distdemo import ops
    from distdemo.bench.rank import fill_with_ones
    from distdemo.measure.timing import CommonStart, timed
    from distdemo.ops.buffers import laid_out
    from distdemo.ops.spec import OpSpec

    op = ops.REGISTRY["all_reduce"]
    spec = OpSpec("all_reduce", rank.world_size, shape=(size // 4,), reduce_op="sum")
    buffers = laid_out(op, rank.rank, spec, rank.device)
    fill_with_ones(buffers)
    call = op.bind(buffers, spec, None, async_op=False)
    align = CommonStart(rank).align
    tensor = buffers.recv[0]  # the same memory for all: its address matters, too
    return {
        "bench": lambda count: timed(rank, call, count, align),
        "a loop": lambda count: by_hand(tensor, count, 0.0),
        "one that rests": lambda count: by_hand(tensor, count, REST_S),
    }


def by_hand(tensor: Tensor, count: int, rest_s: float) -> list[float]:
    """Time all_reduce in the usual way; yield the core for a while before each call."""
    import torch.distributed as dist

    times = []
    for _ in range(count):
        awake = time.perf_counter() + rest_s
        while rest_s and time.perf_counter() < awake:
            os.sched_yield()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - began)
    return times


def take_turns(rank: Rank, size: int, iterations: int) -> dict[str, list[float]]:
    """Run all loops on a rank in alternating blocks; return the times by loop."""
    import torch.distributed as dist

    count = max(1, iterations // BLOCKS) + SETTLING

    def block(loop: Callable[[int], Sequence[float]]) -> list[float]:
        dist.barrier()
        return list(loop(count))[SETTLING:]

    sides = {name: partial(block, loop) for name, loop in loops(rank, size).items()}
    blocks = alternate(sides, BLOCKS)
    return {name: [time for part in parts for time in part] for name, parts in blocks.items()}


def medians(size: int) -> dict[str, float]:
    """Return the median of the slowest rank's times for each loop in a fresh world.

    Raises:
        RuntimeError: The world failed.
    """
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world
    from distdemo.launcher.records import WorldSpec

    world = WorldSpec(2, backend="gloo", start_method="fork", deadline=60.0)
    report = run_world(prepared(world), take_turns, (size, SIZES[size]))
    if not report.ok:
        raise RuntimeError(f"a world failed: {report.verdict}")
    return {
        name: median(map(max, zip(*(times[name] for times in report.values), strict=True)))
        for name in report.values[0]
    }


def measure(smoke: bool) -> Iterator[Result]:
    """Measure all sizes, alternating between them."""
    sides = {f"{size:,} B": partial(medians, size) for size in SIZES}
    for name, worlds in alternate(sides, 1 if smoke else WORLDS).items():
        own = [world["bench"] for world in worlds]
        for other, least in (("a loop", None), ("one that rests", 1 - ASKED)):
            others = [world[other] for world in worlds]
            yield compared(
                f"gloo, {name}, same worlds: bench / {other}",
                ratios(own, others),
                most=1 + ASKED,
                least=least,
                text="{:.3f}".format,
                details=f"{in_words(median(own))}, {in_words(median(others))}; {len(own)} worlds",
            )
