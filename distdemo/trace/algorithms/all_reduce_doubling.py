"""all_reduce by recursive doubling."""

from __future__ import annotations

from collections.abc import Iterator

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
from distdemo.trace.algorithms.schedule import Round, everything


class DoublingAllReduce(Algorithm):
    """Ranks 1, then 2, 4, ... apart exchange all that they have, and both add.

    Four ranks, what each holds of whom::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """

    op = "all_reduce"
    name = "doubling"
    summary = "Ranks 1, 2, 4, ... apart exchange whole tensors and both add: fewest rounds."
    source = f"{THAKUR}, 4.5 (recursive doubling)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(lg p + [e>0])B", lambda n, _: floor_log(n) + odd(n)),
        busiest=Formula("2(lg p + [e>0])B", lambda n, _: 2 * (floor_log(n) + odd(n))),
        total=Formula("(p·lg p + 2e)B", lambda n, _: power(n) * floor_log(n) + 2 * (n - power(n))),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """A bit of the rank's number after the other."""
        whole = everything(chunks)
        yield from fold(n, whole, reduce=True)
        for bit in masks(power(n)):
            yield flip(n, bit, whole, "doubling", reduce=True)
        yield from unfold(n, whole)
