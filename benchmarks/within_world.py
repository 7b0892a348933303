"""The timed loop of ``distdemo bench`` and loops written by hand, in turn within the same worlds.

Two worlds that run the same differ by far more than what is looked for, with the cores that their
threads were given. Within one, all loops have the same: so they take turns there, block by block,
and a world gives one ratio of medians. What counts is the median of many worlds' ratios.

The loop that rests a little before each call, as ``bench`` does while its ranks meet, has to find
the same. The one that calls and calls finds more or less than that, by what is left to do of the
call before: threads of gloo that are still at work, or still awake. ``bench`` may not be worse.

The call and its buffers are those of ``bench``: made, bound and timed by its own code.
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
BLOCKS = 6  # of each loop in a world
SETTLING = 2  # iterations of a block that don't count
Times = dict[str, list[float]]
"""By loop: the time of each iteration, in seconds."""


def loops(rank: Rank, size: int) -> dict[str, Callable[[int], Sequence[float]]]:
    """On a rank: each takes how many iterations, and gives their times."""
    from distdemo import ops
    from distdemo.bench.rank import fill_with_ones
    from distdemo.bench.timing import common_start, timed
    from distdemo.ops.buffers import laid_out
    from distdemo.ops.spec import OpSpec

    op = ops.REGISTRY["all_reduce"]
    spec = OpSpec("all_reduce", rank.world_size, shape=(size // 4,), reduce_op="sum")
    buffers = laid_out(op, rank.rank, spec, rank.device)
    fill_with_ones(op, spec, buffers)
    call, meet = op.bind(buffers, spec, None, async_op=False), common_start(rank).meet
    tensor = buffers.recv[0]  # the same for all: where memory lies makes a difference, too
    return {
        "bench": lambda count: timed(rank, call, count, meet).took,
        "a loop": lambda count: by_hand(tensor, count, 0.0),
        "one that rests": lambda count: by_hand(tensor, count, 1e-6 * REST),
    }


def by_hand(tensor: Tensor, count: int, rest: float) -> list[float]:
    """On a rank: the loop of ``allreduce_loop.py``."""
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
    """On a rank: all loops, block by block, each time in another order."""
    import torch.distributed as dist

    ways = loops(rank, size)
    found: Times = {name: [] for name in ways}
    gc.freeze()  # bench collects garbage before its loop; let that take no time
    each = max(1, iterations // BLOCKS) + SETTLING
    for block in range(BLOCKS):
        order = list(ways) if block % 2 else list(reversed(ways))
        for name in order:
            dist.barrier()
            found[name] += list(ways[name](each))[SETTLING:]
    return found


def medians(size: Size) -> dict[str, float]:
    """Of each loop in a fresh world; an iteration took as long as on the slowest rank.

    Raises:
        RuntimeError: the world failed.
    """
    from distdemo.backends.starting import run_prepared
    from distdemo.launcher.records import WorldSpec

    world = WorldSpec(2, backend="gloo", start_method="fork", deadline=60.0)
    report = run_prepared(world, take_turns, (size.bytes, size.iterations))
    if not report.ok:
        raise RuntimeError(f"a world failed: {report.verdict}")
    return {
        name: statistics.median(
            map(max, zip(*(times[name] for times in report.values), strict=True))
        )
        for name in report.values[0]
    }


def measure() -> Iterator[Result]:
    """Every size; all of them take turns."""
    found: dict[str, list[dict[str, float]]] = {size.name: [] for size in SIZES}
    for _ in range(WORLDS):
        for size in SIZES:
            found[size.name].append(medians(size))
    for size in SIZES:
        for other in ("a loop", "one that rests"):
            yield result(size, found[size.name], other)


def result(size: Size, worlds: Sequence[dict[str, float]], other: str) -> Result:
    """How bench's loop stands to that one."""
    from distdemo.bench.statistics import interval

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
