"""``distdemo bench all-reduce`` over gloo beside a loop that a person wrote, ``allreduce_loop.py``.

The median of one world differs from the next one's by up to a factor of two, with the cores that
its threads were given. So both sides start fresh worlds in turn, a few each, until the ratio of
their launches' medians (see ``distdemo/bench/compare/compare.py``) is known well enough.

There are two such loops. In the one that calls and calls, an iteration also pays for what the one
before left to do; ``bench``, whose ranks meet before each, must not be slower than it, and can be
faster by a tenth where there are fewer cores than threads of gloo. The other one, of which nothing
is asked, rests for a few µs before each call, with no meeting: it shows how much of that it is.

The scatter of worlds leaves an interval of some per cent even so. A limit is missed if all of it
lies beyond; ``within_world.py`` looks closer.
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
ASKED = 0.05  # by which they may differ
KNOWN = 0.02  # the ratio's interval that is narrow enough
LEAST, MOST = 12, 36  # turns of each side
AT_ONCE = 2  # fresh worlds a turn
REST = 5  # µs


@dataclass(frozen=True)
class Size:
    """One size of tensor.

    Attributes:
        bytes: of the tensor, which holds float32.
        iterations: timed, in each world.
        warmup: not timed, before.
        bandwidth: the ratio that counts is that of the bandwidths, not of the times.
    """

    name: str
    bytes: int
    iterations: int
    warmup: int
    bandwidth: bool = False

    @property
    def what(self) -> str:
        """What is compared."""
        return "busbw" if self.bandwidth else "latency"


SIZES = (
    Size("8 B", 8, 300, 10),
    Size("64 KiB", 1 << 16, 100, 10),
    Size("1 MiB", 1 << 20, 30, 5, bandwidth=True),
    Size("16 MiB", 1 << 24, 6, 2, bandwidth=True),
)


class Loop:
    """The hand-written loop, as a process that takes orders."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders = orders
        self._answers = answers

    def medians(self, size: Size, rest: int) -> list[float]:
        """Of a turn's fresh worlds."""
        return [self._median(size, rest) for _ in range(AT_ONCE)]

    def _median(self, size: Size, rest: int) -> float:
        self._orders.write(f"{size.bytes} {size.iterations} {size.warmup} {rest}\n")
        self._orders.flush()
        times: list[float] = json.loads(self._answers.readline())
        return statistics.median(times)


@contextmanager
def loop() -> Iterator[Loop]:
    """The process, as long as the block takes."""
    piped = subprocess.PIPE
    with subprocess.Popen([sys.executable, LOOP], stdin=piped, stdout=piped, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError  # both are pipes
        try:
            yield Loop(process.stdin, process.stdout)
        finally:
            process.stdin.close()


def ours(size: Size) -> list[float]:
    """The medians of a turn's launches of ``distdemo bench``."""
    bounds = ("-b", str(size.bytes), "-e", str(size.bytes), "--no-limits")
    often = ("--iters", str(AT_ONCE * size.iterations), "--launches", str(AT_ONCE))
    words = ("bench", "all-reduce", *bounds, *often, "--warmup", str(size.warmup))
    return launches(document(words))


@dataclass
class Comparison:
    """What is known of one size by now: the medians of each side's launches."""

    size: Size
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    turns: int = 0

    def turn(self, by_hand: Loop) -> None:
        """A few worlds of each; who begins takes turns, too."""
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
    def goes_on(self) -> bool:
        """Whether more turns are needed."""
        if self.turns < LEAST:
            return True
        return self.turns < MOST and not known(quotient(self.ours, self.bare), KNOWN)

    def results(self) -> Iterator[Result]:
        """How they compare."""
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
    """Every size; all of them take turns."""
    comparisons = [Comparison(size) for size in SIZES]
    with loop() as by_hand:
        while going := [each for each in comparisons if each.goes_on]:
            for each in going:
                each.turn(by_hand)
    for each in comparisons:
        yield from each.results()
