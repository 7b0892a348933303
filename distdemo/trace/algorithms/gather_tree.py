"""gather in a binomial tree."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Number,
    bits_set,
    log,
    masks,
)
from distdemo.trace.algorithms.schedule import Block, Round, Sends, Shift


def _sent(n: int, _: int) -> Number:
    """By the rank with the highest bit alone, or the one half as far: parts of all behind it."""
    if n == 1:
        return 0
    highest = masks(n)[-1]
    return Fraction(max(n - highest, highest // 2), n)


def _total(n: int, _: int) -> Number:
    """A tensor travels once for each bit that is set in its rank's number."""
    return Fraction(bits_set(n), n)


class TreeGather(Algorithm):
    """Each hands on all that it has gathered.

    Five ranks, tensors that each has::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1                              # rank 1
        2   2 3                        # rank 2
        3                              # rank 3
        4   4     4                    # rank 4
    """

    op = "gather"
    name = "tree"
    summary = "Ranks hand on what they have gathered, 1, 2, 4, ... tensors: fewest rounds."
    source = f"{THAKUR}, 4.5 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("max(n−m, m/2)/n·B, m the highest power of 2 below n", _sent),
        busiest=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        total=Formula("bits set in 1..n−1, /n·B; ½ lg n·B where e=0", _total),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Every odd m-th rank hands all that it has m places back."""
        for m in masks(n):
            senders = range(m, n, 2 * m)
            yield Round((Sends(senders, Shift(-m), Block(m, receivers=False)),))
