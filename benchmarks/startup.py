"""How long a verified all-reduce takes from nothing, beside torch's import and the alternatives.

Whole processes are timed in turn, A B C A B C ..., and compared round by round, so that a machine
whose speed drifts disturbs all of them alike. What counts is the median of the ratios. Exit 1 if
one misses its limit. Times are wall-clock seconds on the monotonic clock.
"""

from __future__ import annotations

import argparse
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
class Contest:
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


CONTESTS = (
    Contest("4 ranks / import", op(4), LIMIT, 9, most=1.35),
    Contest("16 ranks / import", op(16), LIMIT, 7, most=1.6),
    Contest("64 ranks / import", op(64), LIMIT, 5, most=2.0),
    Contest("4 ranks over mpi / import", op(4, "mpi"), LIMIT, 9, most=1.6),
    Contest("16 ranks over mpi / import", op(16, "mpi"), LIMIT, 7, most=2.5),
    Contest("64 ranks over mpi / import", op(64, "mpi"), LIMIT, 5, most=4.0),
    Contest("256 ranks / import", op(256), LIMIT, 3, most=5.0),
    Contest("torchrun / distdemo, 4 ranks", op(4), torchrun(4), 5, least=2.3),
    Contest("torchrun / distdemo, 16 ranks", op(16), torchrun(16), 3, least=9.0),
    Contest("torchrun / distdemo run, one script, 4 ranks", run(4), torchrun(4), 5, least=2),
    Contest("torchrun / distdemo run, one script, 16 ranks", run(16), torchrun(16), 3, least=8),
    Contest("tutorial's spawn / distdemo, 4 ranks", op(4), tutorial(4), 5),
    Contest("tutorial's spawn / distdemo, 16 ranks", op(16), tutorial(16), 3),
    Contest("--help / import", (PYTHON, "-m", "distdemo", "--help"), LIMIT, 7, most=0.25),
    Contest("--version / import", (PYTHON, "-m", "distdemo", "--version"), LIMIT, 7, most=0.25),
    Contest(
        "a usage error / import",
        (PYTHON, "-m", "distdemo", "all-reduce", "--root", "9"),
        LIMIT,
        7,
        most=0.25,
        status=2,
    ),
    Contest(
        "a world for each case / shared worlds, distdemo check",
        (PYTHON, "-m", "distdemo", "check", "--quiet"),
        (PYTHON, "-m", "distdemo", "check", "--quiet", "--isolate"),
        2,
        least=3.0,
    ),
)


def seconds(command: Sequence[str], status: int = 0) -> float:
    """The wall time of one process, from its start to its end.

    Raises:
        RuntimeError: it ended with another status.
    """
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)
    taken = time.monotonic() - began
    if done.returncode != status:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr!r}")
    return taken


def timed(contest: Contest) -> tuple[list[float], list[float]]:
    """The times of both commands, round by round, after one round that does not count."""
    seconds(contest.first, contest.status)
    seconds(contest.second)
    first, second = [], []
    for _ in range(contest.rounds):
        first.append(seconds(contest.first, contest.status))
        second.append(seconds(contest.second))
    return first, second


def judge(contest: Contest, first: list[float], second: list[float]) -> tuple[list[str], bool]:
    """The row of the table, and whether the ratio is within its limit."""
    turned = contest.most is None
    pairs = zip(second, first, strict=True) if turned else zip(first, second, strict=True)
    ratios = [one / other for one, other in pairs]
    middle = statistics.median(ratios)
    asked, good = "", True
    if contest.most is not None:
        asked, good = f"at most {contest.most:g}", middle <= contest.most
    elif contest.least is not None:
        asked, good = f"at least {contest.least:g}", middle >= contest.least
    row = [
        contest.name,
        f"{middle:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        asked,
        ("yes" if good else "NO") if asked else "",
        f"{statistics.median(first):.2f} s",
        f"{statistics.median(second):.2f} s",
        str(contest.rounds),
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
    """Run every contest and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="contests whose name contains this")
    parser.add_argument("--huge", action="store_true", help="also 1,024 ranks, once")
    options = parser.parse_args()
    console = Console(width=120)
    table = Table("contest", "ratio", "range", "asked", "met", "first", "second", "rounds")
    all_good = True
    for contest in (each for each in CONTESTS if options.only in each.name):
        row, good = judge(contest, *timed(contest))
        console.print(" ".join(row[:5]))
        table.add_row(*row)
        all_good &= good
    console.print(table)
    if not options.only:
        memory = private_megabytes()
        console.print(
            f"private memory of a forked rank: {memory:.1f} MB (at most {PRIVATE_LIMIT:g})"
        )
        all_good &= memory <= PRIVATE_LIMIT
    if options.huge:
        console.print(f"1,024 ranks: verified in {seconds(op(1024)):.1f} s")
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
