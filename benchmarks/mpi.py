"""Compare the time of an all-reduce over mpi with gloo and with plain mpi4py.

The three alternate in one world, round by round, on the same tensor, so changes in the machine's
speed affect all of them equally. The tensor is rewritten before each call, outside the timed part,
as in a program with new data. Otherwise two ranks in lockstep contend for the same cache lines,
and MPI's own time at 1 MiB doubles. A round is a number of calls, reported as their median; the
reported ratio is the median of the rounds' ratios. Exit 1 if a limit is missed.

The ranks are started by the mpiexec of this environment. Times are on rank 0's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WORLDS = (2, 4)
ROUNDS = 5
PATIENCE = 300  # seconds until a world is stopped
ADDED = 6.0  # µs that the backend may add to mpi4py, with one core per rank


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        name: Display name.
        bytes: Size of the float32 tensor.
        calls: Calls per round.
        least: Minimum speed-up over gloo between two ranks, or None for no limit.
    """

    name: str
    bytes: int
    calls: int
    least: float | None = None


SIZES = (
    Size("8 B", 8, 1000, least=15.0),
    Size("64 KiB", 1 << 16, 200),
    Size("1 MiB", 1 << 20, 60, least=4.0),
    Size("16 MiB", 1 << 24, 8),
)
Times = dict[str, list[float]]
"""Median of each round in µs, by candidate."""


def candidates(tensor: Any, gloo: Any) -> dict[str, Callable[[], object]]:
    """Return an all-reduce of the tensor for each candidate, on a rank."""
    import torch.distributed as dist
    from mpi4py import MPI

    message = [tensor.numpy(), MPI.FLOAT]
    comm = MPI.COMM_WORLD
    return {
        "mpi": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
        "mpi4py": lambda: comm.Allreduce(MPI.IN_PLACE, message, MPI.SUM),
    }


def middle(call: Callable[[], object], calls: int, tensor: Any) -> float:
    """Warm up and return the median time in µs of a call on a rewritten tensor."""
    for _ in range(max(2, calls // 10)):
        call()
    times = []
    for _ in range(calls):
        tensor.zero_()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def take_part(store: str) -> None:
    """Measure all sizes on a rank; rank 0 prints the times as JSON."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore  # re-exported untyped by torch.distributed

    import distdemo.mpi  # noqa: F401 - registers "mpi"

    dist.init_process_group("mpi", store=FileStore(store))
    gloo = dist.new_group(backend="gloo")
    found: dict[str, Times] = {}
    for size in SIZES:
        tensor = torch.zeros(size.bytes // 4)
        calls_by_name = candidates(tensor, gloo)
        found[size.name] = {name: [] for name in calls_by_name}
        for _ in range(ROUNDS):
            for name, call in calls_by_name.items():
                found[size.name][name].append(middle(call, size.calls, tensor))
    if dist.get_rank() == 0:
        print("\n" + json.dumps(found), flush=True)
    dist.destroy_process_group()


def measure(ranks: int) -> dict[str, Times]:
    """Return the times in a world of this size.

    Raises:
        RuntimeError: The world failed.
    """
    mpiexec = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        here = [sys.executable, __file__, "--rank", f"{folder}/store"]
        done = subprocess.run(
            [str(mpiexec), "-n", str(ranks), *here],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    if done.returncode:
        raise RuntimeError(f"{ranks} ranks ended with {done.returncode}: {done.stderr}")
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def judge(ranks: int, size: Size, times: Times) -> tuple[list[str], bool]:
    """Return the row of the table, and whether it meets its limits."""
    faster = statistics.median(g / m for g, m in zip(times["gloo"], times["mpi"], strict=True))
    added = statistics.median(m - a for m, a in zip(times["mpi"], times["mpi4py"], strict=True))
    asked, good = [], True
    if size.least is not None and ranks == 2:
        asked.append(f"at least {size.least:g} ×")
        good = faster >= size.least
    if size.bytes == 8 and ranks <= (os.cpu_count() or 1):  # more ranks share cores
        asked.append(f"at most {ADDED:g} µs more")
        good = good and added <= ADDED
    row = [
        f"{ranks} ranks, {size.name}",
        f"{faster:.1f} ×",
        f"{added:.1f} µs",
        ", ".join(asked),
        ("yes" if good else "NO") if asked else "",
        *(f"{statistics.median(times[name]):.1f} µs" for name in ("mpi", "gloo", "mpi4py")),
    ]
    return row, good


def main() -> int:
    """Run every world and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", metavar="STORE", help="run as a rank (internal)")
    parser.add_argument("--ranks", type=int, help="only worlds of this size")
    options = parser.parse_args()
    if options.rank:
        take_part(options.rank)
        return 0
    table = Table("all_reduce", "gloo / mpi", "added", "asked", "met", "mpi", "gloo", "mpi4py")
    all_good = True
    for ranks in WORLDS if options.ranks is None else (options.ranks,):
        found = measure(ranks)
        for size in SIZES:
            row, good = judge(ranks, size, found[size.name])
            table.add_row(*row)
            all_good &= good
    Console(width=120).print(table)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
