"""scatter: rank r gets part r of the root. Chunk r is the root's part for rank r."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    bits_set,
    log,
    masks,
    others,
)
from distdemo.trace.schedule import Block, Round, Sends, Shift, Task, Window


class Scatter(Algorithm):
    """n parts of the root, never cut."""

    op = "scatter"
    task = Task("root", "own", moved=True)


class Tree(Scatter):
    """Whoever has several parts hands half of them on.

    Five ranks, parts that each has::

        0 1 2 3 4   0 1 2 3   0 1   0  # rank 0
                                    1  # rank 1
                              2 3   2  # rank 2
                                    3  # rank 3
                    4         4     4  # rank 4
    """

    name = "tree"
    summary = "Whoever has the parts of several ranks hands half of them on: fewest rounds."
    source = f"{THAKUR}, 4.2 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("(n−1)/n·B", lambda n, _: others(n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: others(n)),
        # A part travels once for each bit that is set in its rank's number.
        total=Formula(
            "bits set in 1..n−1, /n·B; ½ lg n·B where e=0", lambda n, _: Fraction(bits_set(n), n)
        ),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Every 2m-th rank hands the parts of m ranks, as far as there are, m places further."""
        for m in reversed(masks(n)):
            yield Round((Sends(range(0, n - m, 2 * m), Shift(m), Block(m, receivers=True)),))


class Flat(Scatter):
    """``0→1``, ``0→2``, ``0→3``, ...: nothing travels twice."""

    name = "flat"
    summary = "The root sends each rank its part in turn: nothing travels twice."
    source = f"{THAKUR}, 4.4 (the linear scatter of the old reduce-scatter)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·B", lambda n, _: others(n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: others(n)),
        total=Formula("(n−1)/n·B", lambda n, _: others(n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        for rank in range(1, n):
            yield Round((Sends(range(1), Shift(rank), Window(rank)),))


ALGORITHMS = (Tree(), Flat())
