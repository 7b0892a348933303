"""reduce: the root gets the reduction of all ranks' tensors."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    CHAN,
    PIPELINE,
    PJESIVAC,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Round,
    log,
    several,
)


class Reduce(Algorithm):
    """One tensor per rank, cut into C chunks."""

    op = "reduce"
    goal = Goal("all", "root", whole=True, reduced=True)


class Tree(Reduce):
    """The tree of broadcast, upwards. Six ranks: ``1→0 3→2 5→4``; ``2→0``; ``4→0``."""

    name = "tree"
    summary = "Half of the ranks send their sum to the other half, until only the root is left."
    source = f"{THAKUR}, 4.5; {CHAN} (binomial, or minimum spanning tree)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("S", lambda n, _: several(n)),
        busiest=Formula("lg n·S", lambda n, _: log(n)),
        total=Formula("(n−1)S", lambda n, _: n - 1),
        serial=lambda n, _: log(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield rounds up the tree."""
        return shapes.tree(n, range(chunks), up=True, reduce=True)


class Flat(Reduce):
    """``1→0``, ``2→0``, ``3→0``, ...: the root receives everything."""

    name = "flat"
    summary = "One rank after the other sends its whole tensor to the root, which adds them."
    source = f"{PJESIVAC} (flat tree)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("S", lambda n, _: several(n)),
        busiest=Formula("(n−1)S", lambda n, _: n - 1),
        total=Formula("(n−1)S", lambda n, _: n - 1),
        serial=lambda n, _: n - 1,
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per rank."""
        return shapes.star(n, lambda _: range(chunks), up=True, reduce=True)


class Chain(Reduce):
    """Sums of chunks follow each other from the last rank to the root.

    Contributions in the two chunks of each of three ranks::

        0   0     0   0     0 1 2 0     0 1 2 0 1 2  # rank 0
        1   1     1 2 1     1 2   1 2   1 2   1 2    # rank 1
        2   2     2   2     2     2     2     2      # rank 2
    """

    name = "chain"
    summary = "Sums of chunks follow each other from rank to rank: every link is busy at once."
    source = f"{PJESIVAC} (pipeline)"
    formulas = PIPELINE
    chunked = True

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round t, rank n − 1 − i passes on chunk t − i."""
        return shapes.pipeline(n, chunks, up=True)


ALGORITHMS = (Tree(), Flat(), Chain())
