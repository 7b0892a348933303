"""broadcast, flat: the root sends to each rank in turn."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm, Formula, Formulas
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class FlatBroadcast(Algorithm):
    """``0→1``, ``0→2``, ``0→3``, ...: all of it goes through the root."""

    op = "broadcast"
    name = "flat"
    summary = "The root sends the whole tensor to each rank in turn."
    source = "Pješivac-Grbović et al., Performance analysis of MPI collective operations, Cluster "
    source += "Computing 10(2), 2007 (flat tree)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)B", lambda n, _: n - 1),
        busiest=Formula("(n−1)B", lambda n, _: n - 1),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        for rank in range(1, n):
            yield Round((Sends(range(1), Shift(rank), everything(chunks)),))
