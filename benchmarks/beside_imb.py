"""``distdemo bench all-reduce`` over the mpi backend beside Intel's ``IMB-MPI1 Allreduce``.

Both use the MPI of the ``impi-rt`` wheel, on 2 ranks of this machine, and start fresh worlds in
turn. The same thing is compared: the mean time of a call on the slowest rank, in calls that all
ranks begin together (IMB: a barrier between two of them, ``-sync on``, and its column ``t_max``),
on buffers that nobody writes to between two calls (IMB without ``-off_cache``), of float32 sums.
What differs: IMB sums from one buffer into another, torch's all_reduce in place. The bandwidth is
2(n−1)/n × bytes / time of both.

Run by the Python of the environment with that MPI, which ``make other-mpis`` makes:
``.venv-impi-rt``, or what ``DISTDEMO_IMPI_PYTHON`` names.
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
SHARE = 0.15  # of the bandwidth that may be lacking
ADDED = 6e-6  # seconds that a small call may take longer
KNOWN = 0.03  # the interval of a ratio that is narrow enough
LEAST, MOST = 5, 12  # turns of each side
AT_ONCE = 3  # fresh worlds a turn
CALLS = 200  # of IMB, at each size
PATIENCE = 60  # seconds until a world of IMB's is given up
WHOLE = 900  # until all of it is


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        bytes: of the tensor, which holds float32.
        iterations: timed by bench, in each world.
        bandwidth: what is asked for is a share of the bandwidth, not a time.
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
    """One run of IMB: the time of each size, in seconds.

    Raises:
        RuntimeError: it failed.
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
    """Bytes and t_max of the table that IMB prints: bytes, repetitions, t_min, t_max, t_avg."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            yield int(words[0]), 1e-6 * float(words[3])


def ours(size: Size) -> list[float]:
    """The mean of each of a turn's launches of ``distdemo bench``."""
    bounds = ("-b", str(size.bytes), "-e", str(size.bytes), "--no-limits", "--backend", "mpi")
    often = ("--iters", str(AT_ONCE * size.iterations), "--launches", str(AT_ONCE))
    return launches(document(("bench", "all-reduce", *bounds, *often)), statistics.fmean)


@dataclass
class Comparison:
    """What is known by now, a list a size."""

    ours: list[list[float]] = field(default_factory=lambda: [[] for _ in SIZES])
    theirs: list[list[float]] = field(default_factory=lambda: [[] for _ in SIZES])

    def turn(self) -> None:
        """A few worlds of each."""
        for size, times in zip(SIZES, self.ours, strict=True):
            times.extend(ours(size))
            for each, time in zip(self.theirs, imb(), strict=True):
                each.append(time)

    def known(self) -> bool:
        """Whether the ratios of bandwidths are."""
        return all(
            known(quotient(mine, their), KNOWN)
            for size, mine, their in zip(SIZES, self.ours, self.theirs, strict=True)
            if size.bandwidth
        )

    def results(self) -> Iterator[Result]:
        """A row a size."""
        for size, mine, their in zip(SIZES, self.ours, self.theirs, strict=True):
            yield _result(size, mine, their)


def _result(size: Size, mine: Sequence[float], their: Sequence[float]) -> Result:
    middles = f"{in_words(statistics.median(mine))}, {in_words(statistics.median(their))}"
    beside = f"{middles}; {len(mine)}, {len(their)} worlds"
    if size.bandwidth:
        found = inverse(quotient(mine, their))
        asked, good = f"at least {1 - SHARE:.2f}", found.ratio >= 1 - SHARE
        name = f"mpi busbw, {size.name}: bench / IMB"
        return Result(name, f"{found.ratio:.3f}", between(found), asked, good, beside)
    more = added(mine, their)
    ends = "" if more.interval is None else " to ".join(in_words(each) for each in more.interval)
    asked, good = f"at most {1e6 * ADDED:g} µs", more.ratio <= ADDED
    name = f"mpi latency, {size.name}: bench − IMB"
    return Result(name, in_words(more.ratio), ends, asked, good, beside)


def main() -> None:
    """Under the Python with Intel's MPI: take turns until enough is known; print rows as JSON."""
    comparison = Comparison()
    for turn in range(MOST):
        comparison.turn()
        if turn + 1 >= LEAST and comparison.known():
            break
    print(json.dumps([asdict(result) for result in comparison.results()]))


def measure() -> Iterator[Result]:
    """Have that Python do it, if there is one.

    Raises:
        RuntimeError: it failed.
    """
    python = Path(os.environ.get(PYTHON) or USUAL)
    if not python.with_name("IMB-MPI1").exists():
        why = f"no {python.with_name('IMB-MPI1')}: make other-mpis, or set {PYTHON}"
        yield Result("mpi: bench / IMB", "not measured", beside=why)
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
