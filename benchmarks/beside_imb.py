"""Compare ``distdemo bench all-reduce`` over mpi with Intel's ``IMB-MPI1 Allreduce``.

Both use the MPI of the ``impi-rt`` wheel on 2 ranks of this machine and start fresh worlds
alternately. Both measure the mean time of a call on the slowest rank, in calls that all ranks start
together (IMB: a barrier between calls, ``-sync on``, and its column ``t_max``), on buffers that
aren't written between calls (IMB without ``-off_cache``), for float32 sums. The difference: IMB
reduces into a second buffer, torch's all_reduce in place. Bandwidth is 2(n−1)/n × bytes / time.

Runs in the environment with that MPI, created by ``make other-mpis``: ``.venv-impi-rt``, or the
Python given by ``DISTDEMO_IMPI_PYTHON``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ratios import (
    Result,
    added,
    between,
    document,
    in_words,
    inverse,
    known,
    launches,
    quotient,
)

PYTHON = "DISTDEMO_IMPI_PYTHON"
USUAL = Path(__file__).parents[1] / ".venv-impi-rt/bin/python"
SHARE = 0.15  # bandwidth that may be missing, as a fraction
ADDED = 6e-6  # extra seconds allowed for a small call
KNOWN = 0.03  # required precision of a ratio
LEAST, MOST = 5, 12  # rounds per side
AT_ONCE = 3  # fresh worlds per round
CALLS = 200  # calls of IMB per size
PATIENCE = 60  # seconds until a world of IMB is stopped
WHOLE = 900  # seconds until the whole measurement is stopped


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        bytes: Size of the float32 tensor.
        iterations: Iterations timed by bench in each world.
        bandwidth: True if the limit is on the bandwidth rather than the time.
    """

    name: str
    bytes: int
    iterations: int
    bandwidth: bool = True


SIZES = (
    Size("8 B", 8, 300, bandwidth=False),
    Size("1 MiB", 1 << 20, 100),
    Size("16 MiB", 1 << 24, 20),
)


def imb() -> list[float]:
    """Run IMB and return the time of each size in seconds.

    Raises:
        RuntimeError: IMB failed.
    """
    place = Path(sys.prefix)
    start = (str(place / "bin/mpiexec"), "-n", "2", str(place / "bin/IMB-MPI1"), "Allreduce")
    sized = ("-msglog", "3:24", "-npmin", "2", "-iter", str(CALLS), "-iter_policy", "off")
    with tempfile.TemporaryDirectory() as folder:
        lengths = Path(folder, "lengths")
        lengths.write_text("".join(f"{size.bytes}\n" for size in SIZES))
        done = subprocess.run(
            [*start, *sized, "-msglen", str(lengths)],
            env=os.environ | {"LD_LIBRARY_PATH": str(place / "lib")},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    found = dict(_rows(done.stdout))
    if done.returncode or found.keys() != {size.bytes for size in SIZES}:
        raise RuntimeError(f"IMB-MPI1 ended with {done.returncode}: {done.stdout}{done.stderr}")
    return [found[size.bytes] for size in SIZES]


def _rows(text: str) -> Iterator[tuple[int, float]]:
    """Yield bytes and t_max from IMB's table: bytes, repetitions, t_min, t_max, t_avg."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            yield int(words[0]), 1e-6 * float(words[3])


def ours(size: Size) -> list[float]:
    """Return the mean time of each launch of ``distdemo bench`` in a round."""
    bounds = ("-b", str(size.bytes), "-e", str(size.bytes), "--no-limits", "--backend", "mpi")
    often = ("--iters", str(AT_ONCE * size.iterations), "--launches", str(AT_ONCE))
    return launches(document(("bench", "all-reduce", *bounds, *often)), statistics.fmean)


@dataclass
class Comparison:
    """Times measured so far, one list per size."""

    ours: list[list[float]] = field(default_factory=lambda: [[] for _ in SIZES])
    theirs: list[list[float]] = field(default_factory=lambda: [[] for _ in SIZES])

    def turn(self) -> None:
        """Run a few worlds of each side."""
        for size, times in zip(SIZES, self.ours, strict=True):
            times.extend(ours(size))
            for each, time in zip(self.theirs, imb(), strict=True):
                each.append(time)

    def known(self) -> bool:
        """Return True if the bandwidth ratios are precise enough."""
        return all(
            known(quotient(mine, their), KNOWN)
            for size, mine, their in zip(SIZES, self.ours, self.theirs, strict=True)
            if size.bandwidth
        )

    def results(self) -> Iterator[Result]:
        """Yield one row per size."""
        for size, mine, their in zip(SIZES, self.ours, self.theirs, strict=True):
            yield _result(size, mine, their)


def _result(size: Size, mine: Sequence[float], their: Sequence[float]) -> Result:
    middles = f"{in_words(statistics.median(mine))}, {in_words(statistics.median(their))}"
    details = f"{middles}; {len(mine)}, {len(their)} worlds"
    if size.bandwidth:
        found = inverse(quotient(mine, their))
        asked, good = f"at least {1 - SHARE:.2f}", found.ratio >= 1 - SHARE
        name = f"mpi busbw, {size.name}: bench / IMB"
        return Result(name, f"{found.ratio:.3f}", between(found), asked, good, details)
    more = added(mine, their)
    ends = "" if more.interval is None else " to ".join(in_words(each) for each in more.interval)
    asked, good = f"at most {1e6 * ADDED:g} µs", more.ratio <= ADDED
    name = f"mpi latency, {size.name}: bench − IMB"
    return Result(name, in_words(more.ratio), ends, asked, good, details)


def main() -> None:
    """Measure in the Python with Intel's MPI until precise enough; print rows as JSON."""
    comparison = Comparison()
    for turn in range(MOST):
        comparison.turn()
        if turn + 1 >= LEAST and comparison.known():
            break
    print(json.dumps([asdict(result) for result in comparison.results()]))


def measure() -> Iterator[Result]:
    """Run this script in that Python, if it exists.

    Raises:
        RuntimeError: The measurement failed.
    """
    python = Path(os.environ.get(PYTHON) or USUAL)
    if not python.with_name("IMB-MPI1").exists():
        why = f"no {python.with_name('IMB-MPI1')}: make other-mpis, or set {PYTHON}"
        yield Result("mpi: bench / IMB", "not measured", details=why)
        return
    done = subprocess.run(
        [str(python), __file__], capture_output=True, text=True, check=False, timeout=WHOLE
    )
    if done.returncode:
        raise RuntimeError(f"{python} ended with {done.returncode}: {done.stderr}")
    for each in json.loads(done.stdout):
        yield Result(**each)


if __name__ == "__main__":
    main()
