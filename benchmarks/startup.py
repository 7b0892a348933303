"""Compare the start-up time of a verified all-reduce with torch's import and the alternatives.

Whole processes alternate. Times are wall-clock seconds on the monotonic clock. The details have the
ratio of the CPU seconds of all processes, too, which other programs disturb less. The bare loop,
``allreduce_fork.py``, does the same job, but neither times the call nor reports anything.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import rounds
from rounds import PYTHON, Result, alternate, compared, ratios, run

import distdemo

HERE = Path(__file__).parent
IMPORT = (PYTHON, "-c", "import torch.distributed")
FILES = tempfile.TemporaryDirectory()  # of these benchmarks
PRIVATE_BYTES = 8e6  # allowed per forked rank
Command = Sequence[str]


def distdemo_command(*words: str) -> Command:
    """Return a command line of distdemo."""
    return (PYTHON, "-m", "distdemo", *words)


def op(ranks: int, backend: str = "gloo") -> Command:
    """Return the measured command."""
    sized = ("--world-size", str(ranks), "--backend", backend)
    return distdemo_command("all-reduce", *sized, "--quiet")


SCRIPT = str(HERE / "allreduce_torchrun.py")


def torchrun(ranks: int) -> Command:
    """Return the same op under torchrun."""
    sized = ("--standalone", f"--nproc-per-node={ranks}")
    return (PYTHON, "-m", "torch.distributed.run", *sized, SCRIPT)


def run_script(ranks: int) -> Command:
    """Return torchrun's script under ``distdemo run``."""
    return distdemo_command("run", SCRIPT, "-n", str(ranks), "--quiet")


def tutorial(ranks: int) -> Command:
    """Return the same op, started as in PyTorch's tutorials."""
    return (PYTHON, str(HERE / "allreduce_spawn.py"), str(ranks))


def bare(ranks: int) -> Command:
    """Return the cheapest program that does the same job; it says what that includes."""
    return (PYTHON, str(HERE / "allreduce_fork.py"), str(ranks))


def session(mark: str) -> Command:
    """Return a session of pytest with one test that has this mark."""
    program = "import pytest\n@pytest.mark.MARK\ndef test(): pass\n"
    file = Path(tempfile.mkdtemp(dir=FILES.name), "test_one.py")
    file.write_text(program.replace("MARK", mark))
    return (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))


BAD_VALUE = distdemo_command("all-reduce", "--world-size", "none")
UNKNOWN_OPTION = distdemo_command("all-reduce", "--root", "9")
USAGE_ERRORS = (BAD_VALUE, UNKNOWN_OPTION)
# Name, the two commands of the ratio, rounds, and the largest or smallest ratio allowed.
Comparison = tuple[str, Command, Command, int, float | None, float | None]
LIMITS: Sequence[Comparison] = (
    ("4 ranks / import", op(4), IMPORT, 9, 1.35, None),
    ("16 ranks / import", op(16), IMPORT, 7, 1.6, None),
    ("64 ranks / import", op(64), IMPORT, 5, 2.0, None),
    ("256 ranks / import", op(256), IMPORT, 3, 5.0, None),
    ("4 ranks over mpi / import", op(4, "mpi"), IMPORT, 9, 1.6, None),
    ("16 ranks over mpi / import", op(16, "mpi"), IMPORT, 7, 2.5, None),
    ("64 ranks over mpi / import", op(64, "mpi"), IMPORT, 5, 4.0, None),
    # the command line takes a fifth of an import, and multiprocessing's processes the rest
    ("4 ranks / bare loop", op(4), bare(4), 5, 1.6, None),
    ("64 ranks / bare loop", op(64), bare(64), 5, 1.6, None),
    ("256 ranks / bare loop", op(256), bare(256), 3, 1.5, None),
    ("--help / import", distdemo_command("--help"), IMPORT, 7, 0.25, None),
    ("--version / import", distdemo_command("--version"), IMPORT, 7, 0.25, None),
    ("a bad value / import", BAD_VALUE, IMPORT, 7, 0.25, None),
    # all commands are loaded, to name those that have the option
    ("an unknown option / import", UNKNOWN_OPTION, IMPORT, 7, 0.45, None),
)
ALTERNATIVES: Sequence[Comparison] = (
    ("torchrun / distdemo, 4 ranks", torchrun(4), op(4), 5, None, 2.3),
    ("torchrun / distdemo, 16 ranks", torchrun(16), op(16), 3, None, 9.0),
    ("torchrun / distdemo run, one script, 4 ranks", torchrun(4), run_script(4), 5, None, 2.0),
    ("torchrun / distdemo run, one script, 16 ranks", torchrun(16), run_script(16), 3, None, 8.0),
    ("tutorial's spawn / distdemo, 4 ranks", tutorial(4), op(4), 5, None, None),
    ("tutorial's spawn / distdemo, 16 ranks", tutorial(16), op(16), 3, None, None),
)
SMOKE = ("--help / import",)
WARM: Sequence[Comparison] = (
    ("warm, 4 ranks / import", op(4), IMPORT, 9, 0.35, None),
    ("warm, 16 ranks / import", op(16), IMPORT, 7, 0.5, None),
    ("warm, 64 ranks / import", op(64), IMPORT, 5, 0.9, None),
    ("warm, run a script on 4 ranks / import", run_script(4), IMPORT, 7, None, None),
    (
        "warm, check one op / import",
        distdemo_command("check", "--op", "barrier"),
        IMPORT,
        5,
        None,
        None,
    ),
    ("warm, trace / import", distdemo_command("trace"), IMPORT, 7, None, None),
    (
        "warm, pytest with a test on 4 ranks / without",
        session("ranks(4)"),
        session("filterwarnings()"),
        7,
        None,
        None,
    ),
)
"""Commands in the process of ``distdemo warm``; their processor time isn't known here."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one process and its awaited children."""

    wall: float
    processor: float


def cost(command: Command) -> Cost:
    """Return the cost of a whole process, from start to exit."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    run(command, status=2 if command in USAGE_ERRORS else 0)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def processes(comparisons: Sequence[Comparison], smoke: bool) -> Iterator[Result]:
    """Yield the ratio of the times of two commands for each comparison."""
    for name, first, second, rounds_wanted, most, least in comparisons:
        if smoke and name not in SMOKE:
            continue
        if not smoke:  # a warm-up
            cost(first)
            cost(second)
        sides = {"first": partial(cost, first), "second": partial(cost, second)}
        costs = alternate(sides, 1 if smoke else rounds_wanted)
        wall = {side: [one.wall for one in measured] for side, measured in costs.items()}
        processor = {side: [one.processor for one in measured] for side, measured in costs.items()}
        yield compared(
            name,
            ratios(wall["first"], wall["second"]),
            most=most,
            least=least,
            details=f"{median(wall['first']):.2f} s, {median(wall['second']):.2f} s; "
            f"processor {median(ratios(processor['first'], processor['second'])):.2f} ×",
        )


def warm(smoke: bool) -> Iterator[Result]:
    """Yield the ratios with a warm process, in its own folder."""
    os.environ["XDG_RUNTIME_DIR"] = FILES.name
    try:
        run(distdemo_command("warm", "--quiet"))
        yield from processes(WARM, smoke)
    finally:
        run(distdemo_command("warm", "--stop"))
        del os.environ["XDG_RUNTIME_DIR"]


def memory(_: bool) -> Iterator[Result]:
    """Yield the largest private memory of four forked ranks after an all-reduce."""
    private = max(
        distdemo.launch(after_all_reduce, world_size=4, start_method="fork", sanitize=False)
    )
    yield compared(
        "private memory of a forked rank",
        [private],
        most=PRIVATE_BYTES,
        text=lambda count: f"{count / 1e6:.1f} MB",
    )


def after_all_reduce() -> float:
    """All-reduce on a rank and return the bytes of its private memory."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4))
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = (line for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    return 1024.0 * sum(int(line.split()[1]) for line in private)


if __name__ == "__main__":
    parts: dict[str, rounds.Part] = {
        "limits": partial(processes, LIMITS),
        "alternatives": partial(processes, ALTERNATIVES),
        "memory": memory,
        "warm": warm,
    }
    sys.exit(rounds.main(__doc__, parts))
