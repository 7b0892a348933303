"""How much of a non-blocking call hides behind computing that lasts as long as the call.

The measure of the OSU benchmarks for non-blocking collectives: the call alone, the computing
alone, and the call with the computing between it and its wait; what the third takes beyond the
second was not hidden (OSU Micro-Benchmarks, README, osu_iallreduce and its like).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from distdemo.bench.loop import timed
from distdemo.bench.summary import median
from distdemo.bench.yardsticks import Overlap
from distdemo.ops.contract import handles

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

TRIALS = 7  # iterations of each kind
GRAIN = 2048  # elements of the tensor that is computed on: it stays in the first cache
COARSE = 1 << 19  # the same for a call that lasts so long that it would take too many of these
LONG = 0.02  # seconds
PROBE = 200  # repetitions with which the speed of the computing is found


def overlap(
    rank: Rank,
    begin: Callable[[], object],
    took: Sequence[float],
    meet: Callable[[], None],
) -> Overlap:
    """Collective: the three times, each the median of ``TRIALS`` iterations.

    Args:
        rank: this rank.
        begin: makes the call and gives its handles back.
        took: how long the call took alone, seconds each.
        meet: brings all ranks to a common start.
    """
    alone = median(took)
    tensor = torch.ones(GRAIN if alone < LONG else COARSE, device=rank.device)
    repetitions = _as_long_as(alone, tensor, rank)

    def compute() -> None:
        for _ in range(repetitions):
            tensor.mul_(1.0)

    def both() -> None:
        works = handles(begin())
        compute()
        for work in works:
            work.wait()

    computing = timed(rank, compute, TRIALS, meet)
    together = timed(rank, both, TRIALS, meet)
    return Overlap(alone, median(computing.took), median(together.took))


def _as_long_as(seconds: float, tensor: Tensor, rank: Rank) -> int:
    """How many repetitions last so long; on this rank, as the others compute too."""
    for _ in range(PROBE):
        tensor.mul_(1.0)
    rank.synchronize()
    began = perf_counter()
    for _ in range(PROBE):
        tensor.mul_(1.0)
    rank.synchronize()
    each = (perf_counter() - began) / PROBE
    return max(1, round(seconds / each))
