"""gather, flat: each rank in turn sends its tensor to the root."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import THAKUR, Algorithm, Formula, Formulas, several
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class FlatGather(Algorithm):
    """``1→0``, ``2→0``, ``3→0``, ...: nothing travels twice."""

    op = "gather"
    name = "flat"
    summary = "Each rank in turn sends its tensor to the root: nothing travels twice."
    source = f"folklore; the linear scatter backwards, {THAKUR}, 4.4"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("B/n", lambda n, _: Fraction(several(n), n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        total=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        for rank in range(1, n):
            yield Round((Sends(range(rank, rank + 1), Shift(-rank), Window(0)),))
