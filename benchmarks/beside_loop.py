"""Compare ``distdemo bench all-reduce`` over gloo with a hand-written loop, ``allreduce_loop.py``.

The medians of two worlds can differ by a factor of two, depending on the cores of their threads.
So both sides alternately start a few fresh worlds, until the ratio of their launches' medians (see
``distdemo/measure/statistics.py``) is precise enough.

There are two such loops. In the first one, which calls back to back, an iteration also pays for
unfinished work of the previous one. ``bench`` synchronizes its ranks before each call; it must not
be slower than this loop, and can be a tenth faster if gloo has more threads than there are cores.
The second loop, which has no limit, rests for a few µs before each call without synchronization:
it shows the size of that effect.

The worlds' variation still leaves an interval of a few percent. A limit is missed only if the
whole interval is beyond it; ``within_world.py`` is more precise.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from ratios import Result, between, document, in_words, inverse, known, launches, quotient

LOOP = str(Path(__file__).with_name("allreduce_loop.py"))
ASKED = 0.05  # allowed difference
KNOWN = 0.02  # required precision of the ratio
LEAST, MOST = 12, 36  # rounds per side
AT_ONCE = 2  # fresh worlds per round
REST = 5  # µs


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        bytes: Size of the float32 tensor.
        iterations: Timed iterations per world.
        warmup: Untimed iterations before them.
        bandwidth: True if bandwidths are compared rather than times.
    """

    name: str
    bytes: int
    iterations: int
    warmup: int
    bandwidth: bool = False

    @property
    def what(self) -> str:
        """Name of the compared quantity."""
        return "busbw" if self.bandwidth else "latency"


SIZES = (
    Size("8 B", 8, 300, 10),
    Size("64 KiB", 1 << 16, 100, 10),
    Size("1 MiB", 1 << 20, 30, 5, bandwidth=True),
    Size("16 MiB", 1 << 24, 6, 2, bandwidth=True),
)


class Loop:
    """The hand-written loop in a process that reads jobs."""

    def __init__(self, jobs: IO[str], answers: IO[str]) -> None:
        self._jobs = jobs
        self._answers = answers

    def medians(self, size: Size, rest: int) -> list[float]:
        """Return the medians of one round's fresh worlds."""
        return [self._median(size, rest) for _ in range(AT_ONCE)]

    def _median(self, size: Size, rest: int) -> float:
        self._jobs.write(f"{size.bytes} {size.iterations} {size.warmup} {rest}\n")
        self._jobs.flush()
        times: list[float] = json.loads(self._answers.readline())
        return statistics.median(times)


@contextmanager
def loop() -> Iterator[Loop]:
    """Start the process for the duration of the block."""
    piped = subprocess.PIPE
    with subprocess.Popen([sys.executable, LOOP], stdin=piped, stdout=piped, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError  # both are pipes
        try:
            yield Loop(process.stdin, process.stdout)
        finally:
            process.stdin.close()


def ours(size: Size) -> list[float]:
    """Return the medians of one round's launches of ``distdemo bench``."""
    bounds = ("-b", str(size.bytes), "-e", str(size.bytes), "--no-limits")
    often = ("--iters", str(AT_ONCE * size.iterations), "--launches", str(AT_ONCE))
    words = ("bench", "all-reduce", *bounds, *often, "--warmup", str(size.warmup))
    return launches(document(words))


@dataclass
class Comparison:
    """Medians of each side's launches so far, for one size."""

    size: Size
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    turns: int = 0

    def turn(self, by_hand: Loop) -> None:
        """Run a few worlds of each side; the order rotates."""
        sides = [
            (self.ours, partial(ours, self.size)),
            (self.bare, partial(by_hand.medians, self.size, 0)),
            (self.rested, partial(by_hand.medians, self.size, REST)),
        ]
        first = self.turns % len(sides)
        for medians, run in sides[first:] + sides[:first]:
            medians.extend(run())
        self.turns += 1

    @property
    def unfinished(self) -> bool:
        """True if more rounds are needed."""
        if self.turns < LEAST:
            return True
        return self.turns < MOST and not known(quotient(self.ours, self.bare), KNOWN)

    def results(self) -> Iterator[Result]:
        """Yield the comparisons with both loops."""
        yield self._result("a loop", self.bare, f"not over {ASKED:.0%} worse")
        yield self._result("one that rests", self.rested)

    def _result(self, other: str, medians: list[float], asked: str = "") -> Result:
        found = quotient(self.ours, medians)
        low = found.ratio if found.interval is None else found.interval[0]
        good = low <= 1 + ASKED if asked else None
        found = inverse(found) if self.size.bandwidth else found
        middles = [in_words(statistics.median(each)) for each in (self.ours, medians)]
        return Result(
            f"gloo {self.size.what}, {self.size.name}: bench / {other}",
            f"{found.ratio:.3f}",
            between(found),
            asked,
            good,
            f"{middles[0]}, {middles[1]}; {len(medians)} worlds each",
        )


def measure() -> Iterator[Result]:
    """Measure all sizes, alternating between them."""
    comparisons = [Comparison(size) for size in SIZES]
    with loop() as by_hand:
        while going := [each for each in comparisons if each.unfinished]:
            for each in going:
                each.turn(by_hand)
    for each in comparisons:
        yield from each.results()
