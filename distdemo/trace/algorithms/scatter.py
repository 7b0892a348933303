"""scatter: rank r gets part r of the root. Chunk r is the root's part for rank r."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms import shapes
from distdemo.trace.algorithms.contract import (
    BITS,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    log,
    others,
)
from distdemo.trace.schedule import Goal, Round


class Scatter(Algorithm):
    """n parts of the root, never cut."""

    op = "scatter"
    goal = Goal("root", "own", moved=True)


class Tree(Scatter):
    """A rank that has several parts hands half of them on.

    Five ranks, parts that each has::

        0 1 2 3 4   0 1 2 3   0 1   0  # rank 0
                                    1  # rank 1
                              2 3   2  # rank 2
                                    3  # rank 3
                    4         4     4  # rank 4
    """

    name = "tree"
    summary = "A rank with the parts of several ranks hands half of them on: fewest rounds."
    source = f"{THAKUR}, 4.2 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("(n−1)/n·B", lambda n, _: others(n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: others(n)),
        total=BITS,
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Every 2m-th rank hands the parts of m ranks, as far as there are, m places further."""
        return shapes.tree(n)


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
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        return shapes.star(n, lambda rank: (rank,))


ALGORITHMS = (Tree(), Flat())
