"""all_reduce in a ring: a reduce-scatter, then an all-gather."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    PATARASUK,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Printed,
)
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class RingAllReduce(Algorithm):
    """The tensor is cut in n chunks, and all that ever travels is a chunk, to the right neighbour.

    First sums travel and grow; after n−1 rounds rank r has chunk r+1 complete. Then these travel
    on, n−1 rounds again. Chunks of three ranks, and what each holds of whom::

        0     0     0       0     0     0 2     0     0 1 2  0 2    # rank 0
        1     1     1       0 1   1     1       0 1   1      0 1 2  # rank 1
        2     2     2       2     1 2   2       0 1 2 1 2    2      # rank 2
    """

    op = "all_reduce"
    name = "ring"
    summary = "A chunk at a time to the right neighbour: sums grow for n−1 rounds, then travel on."
    source = f"{PATARASUK}; {THAKUR}, section 5 (ring)"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("2(n−1)/n·B", lambda n, _: Fraction(2 * (n - 1), n)),
        busiest=Formula("4(n−1)/n·B", lambda n, _: Fraction(4 * (n - 1), n)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        printed=(
            Printed(
                Formula("2nB", lambda n, _: 2 * n),
                "It counts n rounds in each half: a chunk that has n−1 links behind it has been "
                "everywhere.",
            ),
        ),
    )

    def chunks(self, n: int) -> int:
        """One a rank."""
        return n

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k rank i passes on chunk i − k; in the second half i + 1 − k."""
        for step in range(n - 1):
            yield Round((Sends(range(n), Shift(1), Window(-step), reduce=True),), "reduce-scatter")
        for step in range(n - 1):
            yield Round((Sends(range(n), Shift(1), Window(1 - step)),), "all-gather")
