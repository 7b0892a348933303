"""reduce_scatter by recursive halving."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Number,
    floor_log,
    masks,
    odd,
    power,
)
from distdemo.trace.algorithms.folded import flip, fold, stood_for, unfold
from distdemo.trace.algorithms.schedule import Block, Round, Window, everything


def _busiest(n: int, _: int) -> Number:
    """Of rank 0: its partner's tensor, halves of all others' sums; all but its own sent."""
    core = power(n)
    if core == n:
        return Fraction(2 * (n - 1), n)
    return Fraction(n + core - 1 + stood_for(n) + n - 1, n)


class HalvingReduceScatter(Algorithm):
    """Ranks far apart first exchange the half that the other is in charge of, and add.

    Four ranks; chunks that each is left in charge of, and of how many ranks::

        0 1 2 3: 1   0 1: 2   0: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4  # rank 3
    """

    op = "reduce_scatter"
    name = "halving"
    summary = "Halves, quarters, ... are exchanged and added, until each rank has its chunk."
    source = f"{THAKUR}, 4.4 (recursive halving)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(n−1)/n·B, B where e>0", lambda n, _: 1 if odd(n) else Fraction(n - 1, n)),
        busiest=Formula("2(n−1)/n·B; e>0: (2n+p−2 + Σ min(2^k, e))/n·B", _busiest),
        total=Formula("(n−1 + e/n)B", lambda n, _: n - 1 + Fraction(n - power(n), n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The highest bit of the rank's number first."""
        core = power(n)
        yield from fold(n, everything(chunks), reduce=True)
        for bit in reversed(masks(core)):
            yield flip(n, bit, Block(bit, receivers=True, core=core), "halving", reduce=True)
        yield from unfold(n, Window(core))
