"""How long an all-reduce takes over the mpi backend, beside gloo and beside mpi4py alone.

The three take turns in one world, round by round, on the same tensor, so that a machine whose speed
drifts disturbs all of them alike. The tensor is written anew before each call, outside what is
timed, as by a program that has something new to reduce: without that, two ranks in lockstep keep
meeting in the same cache lines, and MPI's own time at 1 MiB is twice as long. A round is a number
of calls, whose median counts; the ratio that counts is the median of the rounds' ratios. Exit 1 if
one misses its limit.

The ranks are started by the mpiexec beside this Python. Times are on rank 0's clock.
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
PATIENCE = 300  # seconds until a world is given up
ADDED = 6.0  # µs that the backend may add to a call of mpi4py, where each rank has a core


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        name: as it is shown.
        bytes: of the tensor, which holds float32.
        calls: in a round.
        least: how many times faster than gloo it has to be between two ranks; None: not asked.
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
"""By candidate: the median of each round, in µs."""


def candidates(tensor: Any, gloo: Any) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - a tensor, a group
    """On a rank: an all-reduce of the tensor, three ways."""
    import torch.distributed as dist
    from mpi4py import MPI

    message = [tensor.numpy(), MPI.FLOAT]
    comm = MPI.COMM_WORLD
    return {
        "mpi": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
        "mpi4py": lambda: comm.Allreduce(MPI.IN_PLACE, message, MPI.SUM),
    }


def middle(call: Callable[[], object], calls: int, tensor: Any) -> float:  # noqa: ANN401 - a tensor
    """The median time of a call on a tensor that was just written, in µs, once warm."""
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
    """On a rank: every size, in turn; rank 0 prints the times as JSON."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore  # torch.distributed's own, typed

    import distdemo.mpi  # noqa: F401 - makes "mpi" a backend

    dist.init_process_group("mpi", store=FileStore(store))
    gloo = dist.new_group(backend="gloo")
    found: dict[str, Times] = {}
    for size in SIZES:
        tensor = torch.zeros(size.bytes // 4)
        ways = candidates(tensor, gloo)
        found[size.name] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, call in ways.items():
                found[size.name][name].append(middle(call, size.calls, tensor))
    if dist.get_rank() == 0:
        print("\n" + json.dumps(found), flush=True)
    dist.destroy_process_group()


def measure(ranks: int) -> dict[str, Times]:
    """The times in a world of so many ranks.

    Raises:
        RuntimeError: the world failed.
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
    """The row of the table, and whether what is asked for is met."""
    faster = statistics.median(g / m for g, m in zip(times["gloo"], times["mpi"], strict=True))
    added = statistics.median(m - a for m, a in zip(times["mpi"], times["mpi4py"], strict=True))
    asked, good = [], True
    if size.least is not None and ranks == 2:
        asked.append(f"at least {size.least:g} ×")
        good = faster >= size.least
    if size.bytes == 8 and ranks <= (os.cpu_count() or 1):  # beyond, cores are shared
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
    parser.add_argument("--rank", metavar="STORE", help="be a rank of a world (internal)")
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
