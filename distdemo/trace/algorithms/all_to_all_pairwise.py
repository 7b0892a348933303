"""all_to_all, pairwise: each part goes straight to its rank."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import THAKUR, Algorithm, Formula, Formulas
from distdemo.trace.algorithms.schedule import Mine, Round, Sends, Shift


class PairwiseAllToAll(Algorithm):
    """In round k rank i sends to i + k its part, and gets one from i − k."""

    op = "all_to_all"
    name = "pairwise"
    summary = "In round k everyone sends k places further the part that is meant for there."
    source = f"{THAKUR}, 4.3 (long messages)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("2(n−1)/n·B", lambda n, _: Fraction(2 * (n - 1), n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One for each distance."""
        for distance in range(1, n):
            yield Round((Sends(range(n), Shift(distance), Mine()),))
