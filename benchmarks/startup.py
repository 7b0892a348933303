"""How long a verified all-reduce takes from nothing, beside torch's import and the alternatives.

Whole processes are timed in turn, A B A B ..., and compared round by round, so that a machine
whose speed drifts disturbs both alike. What counts is the median of the ratios. Exit 1 if one
misses its limit. Times are wall-clock seconds on the monotonic clock; beside their ratio stands
that of the processor's seconds, of all processes together, which other programs disturb less.

``--sizes 4,64,256`` compares worlds of these sizes with the bare loop alone (allreduce_fork.py).
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
PATIENCE = 300  # seconds until a benchmarked command is given up
PRIVATE_LIMIT = 8.0  # MB of a forked rank


@dataclass(frozen=True)
class Comparison:
    """Two commands timed in turn, and the ratio of their times that is asked for.

    Attributes:
        most: the ratio first/second may be at most this; None if ``least`` is asked for.
        least: the ratio second/first has to be at least this.
    """

    name: str
    first: Sequence[str]
    second: Sequence[str]
    rounds: int
    most: float | None = None
    least: float | None = None
    status: int = 0


def op(ranks: int, backend: str = "gloo") -> tuple[str, ...]:
    """The command that is measured."""
    sized = ("--world-size", str(ranks), "--backend", backend)
    return (PYTHON, "-m", "distdemo", "all-reduce", *sized, "--quiet")


SCRIPT = str(HERE / "allreduce_torchrun.py")


def torchrun(ranks: int) -> tuple[str, ...]:
    """The same op under torchrun."""
    sized = ("--standalone", f"--nproc-per-node={ranks}")
    return (PYTHON, "-m", "torch.distributed.run", *sized, SCRIPT)


def run(ranks: int) -> tuple[str, ...]:
    """The script that torchrun starts, started by ``distdemo run``."""
    return (PYTHON, "-m", "distdemo", "run", SCRIPT, "-n", str(ranks), "--quiet")


def tutorial(ranks: int) -> tuple[str, ...]:
    """The same op as the tutorials start it."""
    return (PYTHON, str(HERE / "allreduce_spawn.py"), str(ranks))


def bare(ranks: int) -> tuple[str, ...]:
    """The least that such a world can cost."""
    return (PYTHON, str(HERE / "allreduce_fork.py"), str(ranks))


def beside_bare(ranks: int) -> Comparison:
    """Distdemo beside the bare loop; large worlds take their time."""
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
    *(beside_bare(ranks) for ranks in (4, 64, 256)),
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
    """What one process took, with all that it has waited for: seconds."""

    wall: float
    processor: float


def cost(command: Sequence[str], status: int = 0) -> Cost:
    """What a whole process takes, from its start to its end.

    Raises:
        RuntimeError: it ended with another status.
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
    """The costs of both commands, round by round, after one round that does not count."""
    if comparison.rounds > 1:
        cost(comparison.first, comparison.status)
        cost(comparison.second)
    return [
        (cost(comparison.first, comparison.status), cost(comparison.second))
        for _ in range(comparison.rounds)
    ]


def judge(comparison: Comparison, rounds: list[tuple[Cost, Cost]]) -> tuple[list[str], bool]:
    """The row of the table, and whether the ratio is within its limit."""
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
    """On a rank: the memory that it shares with nobody."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = (line for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    return 1024 * sum(int(line.split()[1]) for line in private)


def private_megabytes(ranks: int = 4) -> float:
    """The largest private memory of a rank that has all-reduced, started by fork."""
    found = distdemo.launch(after_all_reduce, world_size=ranks, start_method="fork")
    return float(max(found)) / 1e6


def after_all_reduce() -> int:
    """On a rank: all-reduce, then count."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4))
    return private_bytes()


def main() -> int:
    """Run every comparison and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="comparisons whose name contains this")
    parser.add_argument("--sizes", default="", help="worlds of 4,64,... beside the bare loop alone")
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
        comparisons = [beside_bare(int(size)) for size in options.sizes.split(",")]
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
