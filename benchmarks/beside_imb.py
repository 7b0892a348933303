"""Compare ``distdemo bench all-reduce`` over mpi with Intel's ``IMB-MPI1 Allreduce``.

Both use the MPI of the ``impi-rt`` wheel on 2 ranks of this machine and start fresh worlds
alternately. Both measure the mean time of a call on the slowest rank, in calls that all ranks start
together (IMB: a barrier between calls, ``-sync on``, and its column ``t_max``), on buffers that
aren't written between calls (IMB without ``-off_cache``), for float32 sums. The difference: IMB
reduces into a second buffer, torch's all_reduce in place.

Runs in the environment with that MPI, created by ``make other-mpis``: ``.venv-impi-rt``, or the
Python given by ``DISTDEMO_IMPI_PYTHON``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean, median

from rounds import Result, alternate, bench, compared, in_words, ratios, run

VARIABLE = "DISTDEMO_IMPI_PYTHON"
USUAL = Path(__file__).parents[1] / ".venv-impi-rt/bin/python"
SLOWER = 1 / 0.85  # allowed ratio of the times of large tensors
ADDED_S = 6e-6  # allowed for a small call
ROUNDS = 9
CALLS = 200  # calls of IMB per size
SIZES = {8: 300, 1 << 20: 100, 1 << 24: 20}
"""Iterations timed by bench in each world, by bytes."""


def imb() -> dict[int, float]:
    """Run IMB and return the time of each size in seconds."""
    place = Path(sys.prefix)
    with tempfile.TemporaryDirectory() as folder:
        lengths = Path(folder, "lengths")
        lengths.write_text("".join(f"{size}\n" for size in SIZES))
        words = (str(place / "bin/mpiexec"), "-n", "2", str(place / "bin/IMB-MPI1"), "Allreduce")
        counts = ("-msglog", "3:24", "-npmin", "2", "-iter", str(CALLS), "-iter_policy", "off")
        environment = os.environ | {"LD_LIBRARY_PATH": str(place / "lib")}
        text = run((*words, *counts, "-msglen", str(lengths)), env=environment)
    rows = [line.split() for line in text.splitlines()]  # bytes, calls, t_min, t_max, t_avg
    return {int(row[0]): 1e-6 * float(row[3]) for row in rows if len(row) == 5 and row[0].isdigit()}


def own() -> dict[int, float]:
    """Return the mean time of a launch of ``distdemo bench`` for each size in seconds."""
    means = {}
    for size, iterations in SIZES.items():
        options = ("--sizes", str(size), "--backend", "mpi", "--iters", str(6 * iterations))
        means[size] = fmean(bench(*options).rows[0].times_s[0])
    return means


def beside(rounds: int) -> Iterator[Result]:
    """Yield one row per size."""
    times = alternate({"bench": own, "IMB": imb}, rounds)
    for size in SIZES:
        ours = [means[size] for means in times["bench"]]
        theirs = [means[size] for means in times["IMB"]]
        result = partial(compared, details=f"{in_words(median(ours))}, {in_words(median(theirs))}")
        if size == min(SIZES):
            more = [time - other for time, other in zip(ours, theirs, strict=True)]
            yield result(f"mpi, {size:,} B: bench − IMB", more, most=ADDED_S, text=in_words)
        else:
            yield result(f"mpi, {size:,} B: bench / IMB", ratios(ours, theirs), most=SLOWER)


def measure(smoke: bool) -> Iterator[Result]:
    """Run this script in that Python, if it exists."""
    python = Path(os.environ.get(VARIABLE) or USUAL)
    if not python.with_name("IMB-MPI1").exists():
        why = f"no {python.with_name('IMB-MPI1')}: make other-mpis, or set {VARIABLE}"
        yield Result("mpi: bench / IMB", "not measured", details=why)
        return
    text = run((str(python), __file__, "1" if smoke else str(ROUNDS)))
    for fields in json.loads(text):
        yield Result(**fields)


if __name__ == "__main__":
    print(json.dumps([asdict(result) for result in beside(int(sys.argv[1]))]))
