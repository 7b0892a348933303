"""all_reduce by recursive halving and doubling: Rabenseifner's algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    floor_log,
    masks,
    odd,
    power,
)
from distdemo.trace.algorithms.folded import flip, fold, unfold
from distdemo.trace.algorithms.schedule import Block, Round, everything


class HalvingDoublingAllReduce(Algorithm):
    """The tensor is cut in p chunks; halves, then quarters, ... are exchanged, then put together.

    Four ranks; chunks 0 1 | 2 3 that each is left in charge of, and of how many ranks::

        0 1 2 3: 1   0 1: 2   0: 4   0 1: 4   0 1 2 3: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4   0 1: 4   0 1 2 3: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4   2 3: 4   0 1 2 3: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4   2 3: 4   0 1 2 3: 4  # rank 3
    """

    op = "all_reduce"
    name = "halving-doubling"
    summary = "Halves, quarters, ... are exchanged and added, then the sums put together again."
    source = "R. Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004; "
    source += f"{THAKUR}, 4.5"
    formulas = Formulas(
        rounds=Formula("2 lg p + 2·[e>0]", lambda n, _: 2 * (floor_log(n) + odd(n))),
        sent=Formula(
            "(2(p−1)/p + [e>0])B", lambda n, _: Fraction(2 * (power(n) - 1), power(n)) + odd(n)
        ),
        busiest=Formula(
            "(4(p−1)/p + 2·[e>0])B",
            lambda n, _: Fraction(4 * (power(n) - 1), power(n)) + 2 * odd(n),
        ),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
    )

    def chunks(self, n: int) -> int:
        """The largest power of 2 that is not above n."""
        return power(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The highest bit of the rank's number first, and back."""
        whole, bits = everything(chunks), masks(power(n))
        yield from fold(n, whole, reduce=True)
        for bit in reversed(bits):
            yield flip(n, bit, Block(bit, receivers=True), "halving", reduce=True)
        for bit in bits:
            yield flip(n, bit, Block(bit, receivers=False), "doubling")
        yield from unfold(n, whole)
