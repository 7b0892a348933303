"""all_gather in a ring."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import THAKUR, Algorithm, Formula, Formulas
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class RingAllGather(Algorithm):
    """Each passes on what it got last.

    Three ranks, whose tensors each holds::

        0   0 2   0 1 2  # rank 0
        1   0 1   0 1 2  # rank 1
        2   1 2   0 1 2  # rank 2
    """

    op = "all_gather"
    name = "ring"
    summary = "Each passes on to the right neighbour what it got last: its own tensor first."
    source = f"{THAKUR}, 4.1 (ring)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("2(n−1)/n·B", lambda n, _: Fraction(2 * (n - 1), n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k rank i passes on chunk i − k."""
        for step in range(n - 1):
            yield Round((Sends(range(n), Shift(1), Window(-step)),))
