"""scatter: rank r gets the root's part r, which is chunk r."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    BITS,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Round,
    log,
    others,
)


class Scatter(Algorithm):
    """n parts of the root, never cut."""

    op = "scatter"
    goal = Goal("root", "own", moved=True)


class Tree(Scatter):
    """A rank that has several parts passes on half of them.

    Parts held by each of five ranks::

        0 1 2 3 4   0 1 2 3   0 1   0  # rank 0
                                    1  # rank 1
                              2 3   2  # rank 2
                                    3  # rank 3
                    4         4     4  # rank 4
    """

    name = "tree"
    summary = "A rank with the parts of several ranks passes on half of them: fewest rounds."
    source = f"{THAKUR}, 4.2 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("(n−1)/n·S", lambda n, _: others(n)),
        busiest=Formula("(n−1)/n·S", lambda n, _: others(n)),
        total=BITS,
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield rounds in which each multiple of 2m sends up to m parts to the rank m above."""
        return shapes.tree(n)


class Flat(Scatter):
    """``0→1``, ``0→2``, ``0→3``, ...: every part is sent once."""

    name = "flat"
    summary = "The root sends each rank its part, one after the other: each is sent once."
    source = f"{THAKUR}, 4.4 (the linear scatter of the old reduce-scatter)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·S", lambda n, _: others(n)),
        busiest=Formula("(n−1)/n·S", lambda n, _: others(n)),
        total=Formula("(n−1)/n·S", lambda n, _: others(n)),
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per rank."""
        return shapes.star(n, lambda rank: (rank,))


ALGORITHMS = (Tree(), Flat())
