"""Compare the time of an all-reduce over mpi with gloo and with plain mpi4py.

The three alternate in one world, on the same tensor. It is rewritten before each call, outside the
timed part, as in a program with new data. Otherwise two ranks in lockstep contend for the same
cache lines, and MPI's own time at 1 MiB doubles. A round is a number of calls, reported as their
median.

The ranks are started by the mpiexec of this environment. Times are on rank 0's clock.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import rounds
from rounds import PYTHON, Result, alternate, compared, in_words, ratios, run

WORLDS = (2, 4)
ROUNDS = 5
ADDED_S = 6e-6  # that the backend may add to mpi4py, with one core per rank
SIZES = {8: 1000, 1 << 16: 200, 1 << 20: 60, 1 << 24: 8}
"""Calls per round, by bytes."""
FASTER = {8: 15.0, 1 << 20: 4.0}
"""Smallest speed-up over gloo between two ranks, by bytes."""
Times = dict[str, dict[str, list[float]]]
"""Median of each round, by size and candidate."""


def candidates(tensor: Any, gloo: Any) -> dict[str, Callable[[], object]]:
    """Return an all-reduce of the tensor for each candidate, on a rank."""
    import torch.distributed as dist
    from mpi4py import MPI

    message = [tensor.numpy(), MPI.FLOAT]
    world = MPI.COMM_WORLD
    return {
        "mpi": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
        "mpi4py": lambda: world.Allreduce(MPI.IN_PLACE, message, MPI.SUM),
    }


def median_of(call: Callable[[], object], calls: int, tensor: Any) -> float:
    """Warm up and return the median time of a call on a rewritten tensor."""
    for _ in range(max(2, calls // 10)):
        call()
    times = []
    for _ in range(calls):
        tensor.zero_()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times)


def take_part(store: str, rounds_wanted: int) -> None:
    """Measure all sizes on a rank; rank 0 prints the times as JSON."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore  # re-exported untyped by torch.distributed

    import distdemo.mpi  # noqa: F401 - registers "mpi"

    dist.init_process_group("mpi", store=FileStore(store))
    gloo = dist.new_group(backend="gloo")
    times: Times = {}
    for size, calls in SIZES.items():
        tensor = torch.zeros(size // 4)
        count = calls if rounds_wanted > 1 else max(1, calls // 20)
        sides = {
            name: partial(median_of, call, count, tensor)
            for name, call in candidates(tensor, gloo).items()
        }
        times[str(size)] = alternate(sides, rounds_wanted)
    if dist.get_rank() == 0:
        print("\n" + json.dumps(times), flush=True)
    dist.destroy_process_group()


def world(ranks: int, smoke: bool) -> Iterator[Result]:
    """Yield the comparisons of every size in a world of this many ranks."""
    mpiexec = str(Path(PYTHON).with_name("mpiexec"))
    with tempfile.TemporaryDirectory() as folder:
        program = (PYTHON, __file__, "--rank", f"{folder}/store", str(1 if smoke else ROUNDS))
        text = run((mpiexec, "-n", str(ranks), *program))
    times: Times = next(json.loads(line) for line in text.splitlines() if line.startswith("{"))
    for size in SIZES:
        mpi, gloo, alone = (times[str(size)][name] for name in ("mpi", "gloo", "mpi4py"))
        name = f"{ranks} ranks, {size:,} B"
        details = ", ".join(in_words(median(seconds)) for seconds in (mpi, gloo, alone))
        least = FASTER.get(size) if ranks == 2 else None
        yield compared(f"{name}: gloo / mpi", ratios(gloo, mpi), least=least, details=details)
        more = [time - other for time, other in zip(mpi, alone, strict=True)]
        limited = size == min(SIZES) and ranks <= (os.cpu_count() or 1)  # else they share cores
        most = ADDED_S if limited else None
        yield compared(f"{name}: mpi − mpi4py", more, most=most, text=in_words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        take_part(sys.argv[2], int(sys.argv[3]))
    else:
        worlds = {f"{ranks}-ranks": partial(world, ranks) for ranks in WORLDS}
        sys.exit(rounds.main(__doc__, worlds))
