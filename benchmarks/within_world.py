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

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from beside_loop import ASKED, REST, SIZES, Size
from ratios import Result, in_words

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

WORLDS = 31
BLOCKS = 6  # blocks of each loop per world
SETTLING = 2  # ignored iterations at the start of a block
Times = dict[str, list[float]]
"""Seconds of each iteration, by loop."""


def loops(rank: Rank, size: int) -> dict[str, Callable[[int], Sequence[float]]]:
    """Return the loops on a rank: functions from a number of iterations to their times."""
    from distdemo import ops
    from distdemo.bench.rank import fill_with_ones
    from distdemo.measure.timing import common_start, timed
    from distdemo.ops.buffers import laid_out
    from distdemo.ops.spec import OpSpec

    op = ops.REGISTRY["all_reduce"]
    spec = OpSpec("all_reduce", rank.world_size, shape=(size // 4,), reduce_op="sum")
    buffers = laid_out(op, rank.rank, spec, rank.device)
    fill_with_ones(buffers)
    call, start = op.bind(buffers, spec, None, async_op=False), common_start(rank).align
    tensor = buffers.recv[0]  # the same memory for all: its address matters, too
    return {
        "bench": lambda count: timed(rank, call, count, start).took,
        "a loop": lambda count: by_hand(tensor, count, 0.0),
        "one that rests": lambda count: by_hand(tensor, count, 1e-6 * REST),
    }


def by_hand(tensor: Tensor, count: int, rest: float) -> list[float]:
    """Run the loop of ``allreduce_loop.py`` on a rank."""
    import torch.distributed as dist

    times = []
    for _ in range(count):
        awake = time.perf_counter() + rest
        while rest and time.perf_counter() < awake:
            os.sched_yield()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - began)
    return times


def take_turns(rank: Rank, size: int, iterations: int) -> Times:
    """Run all loops on a rank in blocks of alternating order."""
    import torch.distributed as dist

    all_loops = loops(rank, size)
    found: Times = {name: [] for name in all_loops}
    gc.freeze()  # makes the garbage collection before bench's loop fast
    each = max(1, iterations // BLOCKS) + SETTLING
    for block in range(BLOCKS):
        order = list(all_loops) if block % 2 else list(reversed(all_loops))
        for name in order:
            dist.barrier()
            found[name] += list(all_loops[name](each))[SETTLING:]
    return found


def medians(size: Size) -> dict[str, float]:
    """Return the median of the slowest rank's times for each loop in a fresh world.

    Raises:
        RuntimeError: The world failed.
    """
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world
    from distdemo.launcher.records import WorldSpec

    world = WorldSpec(2, backend="gloo", start_method="fork", deadline=60.0)
    report = run_world(prepared(world), take_turns, (size.bytes, size.iterations))
    if not report.ok:
        raise RuntimeError(f"a world failed: {report.verdict}")
    return {
        name: statistics.median(
            map(max, zip(*(times[name] for times in report.values), strict=True))
        )
        for name in report.values[0]
    }


def measure() -> Iterator[Result]:
    """Measure all sizes, alternating between them."""
    found: dict[str, list[dict[str, float]]] = {size.name: [] for size in SIZES}
    for _ in range(WORLDS):
        for size in SIZES:
            found[size.name].append(medians(size))
    for size in SIZES:
        for other in ("a loop", "one that rests"):
            yield result(size, found[size.name], other)


def result(size: Size, worlds: Sequence[dict[str, float]], other: str) -> Result:
    """Return the ratio of bench's loop to another one."""
    from distdemo.measure.statistics import interval

    shares = [each["bench"] / each[other] for each in worlds]
    middle, ends = statistics.median(shares), interval(shares)
    resting = other != "a loop"
    good = (not resting or middle >= 1 - ASKED) and middle <= 1 + ASKED
    times = [
        in_words(statistics.median(each[name] for each in worlds)) for name in ("bench", other)
    ]
    if size.bandwidth:
        middle, ends = 1 / middle, ends and (1 / ends[1], 1 / ends[0])
    return Result(
        f"gloo {size.what}, {size.name}, same worlds: bench / {other}",
        f"{middle:.3f}",
        "{:.3f} to {:.3f}".format(*ends) if ends else "",
        f"within {ASKED:.0%}" if resting else f"at most {ASKED:.0%} worse",
        good,
        f"{times[0]}, {times[1]}; {len(worlds)} worlds",
    )
