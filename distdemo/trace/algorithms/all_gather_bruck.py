"""all_gather by Bruck's algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    BRUCK,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    log,
    masks,
)
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class BruckAllGather(Algorithm):
    """Rank i gets from i + 1, i + 2, i + 4, ... what comes next after what it has.

    Five ranks::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1   1 2   1 2 3 4   1 2 3 4 0  # rank 1
        2   2 3   2 3 4 0   2 3 4 0 1  # rank 2
        3   3 4   3 4 0 1   3 4 0 1 2  # rank 3
        4   4 0   4 0 1 2   4 0 1 2 3  # rank 4
    """

    op = "all_gather"
    name = "bruck"
    summary = "From ranks 1, 2, 4, ... further on comes what follows: lg n rounds for every n."
    source = f"{BRUCK}; {THAKUR}, 4.1 (Bruck)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("2(n−1)/n·B", lambda n, _: Fraction(2 * (n - 1), n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """All that a rank has, in the last round no more than is lacking."""
        for have in masks(n):
            yield Round((Sends(range(n), Shift(-have), Window(0, min(have, n - have))),))
