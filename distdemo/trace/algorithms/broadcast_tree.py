"""broadcast in a binomial tree."""

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
)
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class TreeBroadcast(Algorithm):
    """Whoever has the tensor sends it to one who has not, so that twice as many have it.

    Six ranks: ``0→1``; ``0→2 1→3``; ``0→4 1→5``.
    """

    op = "broadcast"
    name = "tree"
    summary = "All who have the tensor send it to one more rank each: twice as many every round."
    source = f"{THAKUR}, 4.2; {CHAN} (binomial, or minimum spanning tree)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("lg n·B", lambda n, _: log(n)),
        busiest=Formula("lg n·B", lambda n, _: log(n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k the ranks below 2^k send that far."""
        for have in masks(n):
            senders = range(min(have, n - have))
            yield Round((Sends(senders, Shift(have), everything(chunks)),))
