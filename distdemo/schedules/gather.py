"""gather: the root gets all ranks' tensors. Chunk r is rank r's tensor."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    BITS,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Number,
    Round,
    log,
    masks,
    others,
    several,
)


class Gather(Algorithm):
    """One tensor per rank, never cut."""

    op = "gather"
    goal = Goal("own", "root", moved=True)


def _sent_in_tree(n: int, _: int) -> Number:
    """Return what the rank with only the highest bit set sends, or the one at half its distance."""
    if n == 1:
        return 0
    highest = masks(n)[-1]
    return Fraction(max(n - highest, highest // 2), n)


class Tree(Gather):
    """Each rank passes on everything that it has gathered.

    Tensors held by each of five ranks::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1                              # rank 1
        2   2 3                        # rank 2
        3                              # rank 3
        4   4     4                    # rank 4
    """

    name = "tree"
    summary = "Ranks pass on the 1, 2, 4, ... tensors that they have gathered: fewest rounds."
    source = f"{THAKUR}, 4.5 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("max(n−m, m/2)/n·S, m the highest power of 2 below n", _sent_in_tree),
        busiest=Formula("(n−1)/n·S", lambda n, _: others(n)),
        total=BITS,
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield rounds in which each odd multiple of m sends all it has to the rank m below."""
        return shapes.tree(n, up=True)


class Flat(Gather):
    """``1→0``, ``2→0``, ``3→0``, ...: every tensor is sent once."""

    name = "flat"
    summary = "One rank after the other sends its tensor to the root: each is sent once."
    source = f"folklore; the linear scatter backwards, {THAKUR}, 4.4"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("S/n", lambda n, _: Fraction(several(n), n)),
        busiest=Formula("(n−1)/n·S", lambda n, _: others(n)),
        total=Formula("(n−1)/n·S", lambda n, _: others(n)),
        serial=lambda n, _: others(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per rank."""
        return shapes.star(n, lambda rank: (rank,), up=True)


ALGORITHMS = (Tree(), Flat())
