"""Compare the start-up time of a verified all-reduce with torch's import and the alternatives.

Whole processes alternate, A B A B ..., and are compared per round, so changes in the machine's
speed affect both equally. The result is the median of the ratios. Exit 1 if a limit is missed.
Times are wall-clock seconds on the monotonic clock. The table also has the ratio of the CPU
seconds of all processes, which other programs disturb less.

``--sizes 4,64,256`` only compares worlds of these sizes with the bare loop (allreduce_fork.py).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import distdemo

HERE = Path(__file__).parent
PYTHON = sys.executable
LIMIT = (PYTHON, "-c", "import torch.distributed")
PATIENCE = 300  # seconds until a benchmarked command is stopped
PRIVATE_LIMIT = 8.0  # MB per forked rank


@dataclass(frozen=True)
class Comparison:
    """Two commands to time alternately, and the limit of the ratio of their times.

    Attributes:
        most: Maximum of the ratio first/second, or None.
        least: Minimum of the ratio second/first, or None.
    """

    name: str
    first: Sequence[str]
    second: Sequence[str]
    rounds: int
    most: float | None = None
    least: float | None = None
    status: int = 0


def op(ranks: int, backend: str = "gloo") -> tuple[str, ...]:
    """Return the measured command."""
    sized = ("--world-size", str(ranks), "--backend", backend)
    return (PYTHON, "-m", "distdemo", "all-reduce", *sized, "--quiet")


SCRIPT = str(HERE / "allreduce_torchrun.py")


def torchrun(ranks: int) -> tuple[str, ...]:
    """Return the same op under torchrun."""
    sized = ("--standalone", f"--nproc-per-node={ranks}")
    return (PYTHON, "-m", "torch.distributed.run", *sized, SCRIPT)


def run(ranks: int) -> tuple[str, ...]:
    """Return torchrun's script under ``distdemo run``."""
    return (PYTHON, "-m", "distdemo", "run", SCRIPT, "-n", str(ranks), "--quiet")


def tutorial(ranks: int) -> tuple[str, ...]:
    """Return the same op, started as in PyTorch's tutorials."""
    return (PYTHON, str(HERE / "allreduce_spawn.py"), str(ranks))


def bare(ranks: int) -> tuple[str, ...]:
    """Return the same op with the minimum cost of a world."""
    return (PYTHON, str(HERE / "allreduce_fork.py"), str(ranks))


def with_bare(ranks: int) -> Comparison:
    """Compare distdemo with the bare loop; fewer rounds for large worlds."""
    rounds = 5 if ranks < 128 else 3 if ranks < 512 else 1
    return Comparison(f"{ranks} ranks / bare loop", op(ranks), bare(ranks), rounds, most=1.25)


COMPARISONS = (
    Comparison("4 ranks / import", op(4), LIMIT, 9, most=1.35),
    Comparison("16 ranks / import", op(16), LIMIT, 7, most=1.6),
    Comparison("64 ranks / import", op(64), LIMIT, 5, most=2.0),
    Comparison("4 ranks over mpi / import", op(4, "mpi"), LIMIT, 9, most=1.6),
    Comparison("16 ranks over mpi / import", op(16, "mpi"), LIMIT, 7, most=2.5),
    Comparison("64 ranks over mpi / import", op(64, "mpi"), LIMIT, 5, most=4.0),
    Comparison("256 ranks / import", op(256), LIMIT, 3, most=5.0),
    *(with_bare(ranks) for ranks in (4, 64, 256)),
    Comparison("torchrun / distdemo, 4 ranks", op(4), torchrun(4), 5, least=2.3),
    Comparison("torchrun / distdemo, 16 ranks", op(16), torchrun(16), 3, least=9.0),
    Comparison("torchrun / distdemo run, one script, 4 ranks", run(4), torchrun(4), 5, least=2),
    Comparison("torchrun / distdemo run, one script, 16 ranks", run(16), torchrun(16), 3, least=8),
    Comparison("tutorial's spawn / distdemo, 4 ranks", op(4), tutorial(4), 5),
    Comparison("tutorial's spawn / distdemo, 16 ranks", op(16), tutorial(16), 3),
    Comparison("--help / import", (PYTHON, "-m", "distdemo", "--help"), LIMIT, 7, most=0.25),
    Comparison("--version / import", (PYTHON, "-m", "distdemo", "--version"), LIMIT, 7, most=0.25),
    Comparison(
        "a usage error / import",
        (PYTHON, "-m", "distdemo", "all-reduce", "--root", "9"),
        LIMIT,
        7,
        most=0.25,
        status=2,
    ),
    Comparison(
        "a world for each case / shared worlds, distdemo check",
        (PYTHON, "-m", "distdemo", "check", "--quiet"),
        (PYTHON, "-m", "distdemo", "check", "--quiet", "--isolate"),
        2,
        least=3.0,
    ),
)


@dataclass(frozen=True)
class Cost:
    """Seconds of one process and its awaited children."""

    wall: float
    processor: float


def cost(command: Sequence[str], status: int = 0) -> Cost:
    """Return the cost of a whole process, from start to exit.

    Raises:
        RuntimeError: It exited with a different status.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)
    taken = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr!r}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(taken, processor)


def timed(comparison: Comparison) -> list[tuple[Cost, Cost]]:
    """Return the costs of both commands per round, after a warm-up round."""
    if comparison.rounds > 1:
        cost(comparison.first, comparison.status)
        cost(comparison.second)
    return [
        (cost(comparison.first, comparison.status), cost(comparison.second))
        for _ in range(comparison.rounds)
    ]


def judge(comparison: Comparison, rounds: list[tuple[Cost, Cost]]) -> tuple[list[str], bool]:
    """Return the row of the table, and whether the ratio is within its limit."""
    turn = -1 if comparison.most is None else 1
    ratios = [(first.wall / second.wall) ** turn for first, second in rounds]
    processor = [(first.processor / second.processor) ** turn for first, second in rounds]
    middle = statistics.median(ratios)
    asked, good = "", True
    if comparison.most is not None:
        asked, good = f"at most {comparison.most:g}", middle <= comparison.most
    elif comparison.least is not None:
        asked, good = f"at least {comparison.least:g}", middle >= comparison.least
    row = [
        comparison.name,
        f"{middle:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        asked,
        ("yes" if good else "NO") if asked else "",
        f"{statistics.median(processor):.2f}",
        f"{statistics.median(first.wall for first, _ in rounds):.2f} s",
        f"{statistics.median(second.wall for _, second in rounds):.2f} s",
        str(len(rounds)),
    ]
    return row, good


def private_bytes() -> int:
    """Return the private memory of this rank."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = (line for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    return 1024 * sum(int(line.split()[1]) for line in private)


def private_megabytes(ranks: int = 4) -> float:
    """Return the largest private memory of forked ranks after an all-reduce."""
    found = distdemo.launch(after_all_reduce, world_size=ranks, start_method="fork", sanitize=False)
    return float(max(found)) / 1e6


def after_all_reduce() -> int:
    """All-reduce on a rank and return its private memory."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4))
    return private_bytes()


def main() -> int:
    """Run every comparison and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="comparisons whose name contains this")
    parser.add_argument(
        "--sizes", default="", help="only compare worlds of 4,64,... with the bare loop"
    )
    options = parser.parse_args()
    console = Console(width=130)
    heads = (
        "comparison",
        "ratio",
        "range",
        "asked",
        "met",
        "processor",
        "first",
        "second",
        "rounds",
    )
    table = Table(*heads)
    all_good = True
    comparisons = [each for each in COMPARISONS if options.only in each.name]
    if options.sizes:
        comparisons = [with_bare(int(size)) for size in options.sizes.split(",")]
    for comparison in comparisons:
        row, good = judge(comparison, timed(comparison))
        console.print(" ".join(row[:6]))
        table.add_row(*row)
        all_good &= good
    console.print(table)
    if not (options.only or options.sizes):
        memory = private_megabytes()
        console.print(
            f"private memory of a forked rank: {memory:.1f} MB (at most {PRIVATE_LIMIT:g})"
        )
        all_good &= memory <= PRIVATE_LIMIT
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
