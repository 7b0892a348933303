"""reduce_scatter in a ring."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import PATARASUK, THAKUR, Algorithm, Formula, Formulas
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class RingReduceScatter(Algorithm):
    """Sums of a chunk go around and grow; the one for rank r begins at its right neighbour.

    Three ranks; whose parts the chunk has that a rank has just got::

        -   2: 1      0: 1, 2    # rank 0
        -   0: 2      1: 2, 0    # rank 1, as it were: each gets the chunk of the next rank but one,
        -   1: 0      2: 0, 1    # rank 2  then its own
    """

    op = "reduce_scatter"
    name = "ring"
    summary = "A sum of one chunk at a time goes to the right neighbour, and grows on its way."
    source = f"{PATARASUK}; {THAKUR}, 4.4 (pairwise has the same cost)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("2(n−1)/n·B", lambda n, _: Fraction(2 * (n - 1), n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k rank i passes on chunk i − 1 − k."""
        for step in range(n - 1):
            yield Round((Sends(range(n), Shift(1), Window(-1 - step), reduce=True),))
