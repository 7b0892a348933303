"""scatter in a binomial tree."""

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


def _total(n: int, _: int) -> Number:
    """A part travels once for each bit that is set in its rank's number."""
    return Fraction(bits_set(n), n)


class TreeScatter(Algorithm):
    """Whoever has several parts hands half of them on.

    Five ranks, parts that each has::

        0 1 2 3 4   0 1 2 3   0 1   0  # rank 0
                                    1  # rank 1
                              2 3   2  # rank 2
                                    3  # rank 3
                    4         4     4  # rank 4
    """

    op = "scatter"
    name = "tree"
    summary = "Whoever has the parts of several ranks hands half of them on: fewest rounds."
    source = f"{THAKUR}, 4.2 (binomial)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        total=Formula("bits set in 1..n−1, /n·B; ½ lg n·B where e=0", _total),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Every 2m-th rank hands the parts of m ranks, as far as there are, m places further."""
        for m in reversed(masks(n)):
            senders = range(0, n - m, 2 * m)
            yield Round((Sends(senders, Shift(m), Block(m, receivers=True)),))
