"""scatter, flat: the root sends each rank its part in turn."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import THAKUR, Algorithm, Formula, Formulas
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class FlatScatter(Algorithm):
    """``0→1``, ``0→2``, ``0→3``, ...: nothing travels twice."""

    op = "scatter"
    name = "flat"
    summary = "The root sends each rank its part in turn: nothing travels twice."
    source = f"{THAKUR}, 4.4 (the linear scatter of the old reduce-scatter)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        busiest=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
        total=Formula("(n−1)/n·B", lambda n, _: Fraction(n - 1, n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        for rank in range(1, n):
            yield Round((Sends(range(1), Shift(rank), Window(rank)),))
