"""all_gather by recursive doubling."""

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
from distdemo.trace.algorithms.schedule import Block, Round, Window


def _sent(n: int, _: int) -> Number:
    """By rank 0: its block at each doubling, with those that it stands for; then all but one."""
    core = power(n)
    if core == n:
        return Fraction(n - 1, n)
    return Fraction(core - 1 + stood_for(n) + n - 1, n)


class DoublingAllGather(Algorithm):
    """Ranks 1, 2, 4, ... apart exchange all that they have.

    Four ranks::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """

    op = "all_gather"
    name = "doubling"
    summary = "Ranks 1, 2, 4, ... apart exchange all that they have: it doubles each time."
    source = f"{THAKUR}, 4.1 (recursive doubling; beyond a power of 2 with partners, as in 4.5)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(n−1)/n·B; e>0: (n+p−2 + Σ min(2^k, e))/n·B", _sent),
        busiest=Formula(
            "2(n−1)/n·B; e>0: (2n+p−3 + Σ min(2^k, e))/n·B",
            lambda n, _: _sent(n, 1) + Fraction(n - 1, n),
        ),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The lowest bit of the rank's number first; partners get all but their own at the end."""
        core = power(n)
        yield from fold(n, Window(0), reduce=False)
        for bit in masks(core):
            yield flip(n, bit, Block(bit, receivers=False, core=core), "doubling")
        yield from unfold(n, Window(core + 1, n - 1))
