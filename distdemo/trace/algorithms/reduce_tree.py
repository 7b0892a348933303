"""reduce in a binomial tree."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import (
    CHAN,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    log,
    masks,
    several,
)
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class TreeReduce(Algorithm):
    """The broadcast's tree, backwards: half of those who have a sum hand it to the other half.

    Six ranks: ``4→0 5→1``; ``2→0 3→1``; ``1→0``.
    """

    op = "reduce"
    name = "tree"
    summary = "Half of the ranks hand their sum to the other half, until the root has it."
    source = f"{THAKUR}, 4.5; {CHAN} (binomial, or minimum spanning tree)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("B", lambda n, _: several(n)),
        busiest=Formula("lg n·B", lambda n, _: log(n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The ranks from 2^k on send that far down, the highest k first."""
        for left in reversed(masks(n)):
            senders = range(left, min(2 * left, n))
            yield Round((Sends(senders, Shift(-left), everything(chunks), reduce=True),))
