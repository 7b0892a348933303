"""reduce, flat: each rank in turn sends to the root."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm, Formula, Formulas, several
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class FlatReduce(Algorithm):
    """``1→0``, ``2→0``, ``3→0``, ...: all of it goes through the root."""

    op = "reduce"
    name = "flat"
    summary = "Each rank in turn sends its whole tensor to the root, which adds up."
    source = "Pješivac-Grbović et al., Performance analysis of MPI collective operations, Cluster "
    source += "Computing 10(2), 2007 (flat tree)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("B", lambda n, _: several(n)),
        busiest=Formula("(n−1)B", lambda n, _: n - 1),
        total=Formula("(n−1)B", lambda n, _: n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        for rank in range(1, n):
            own, whole = range(rank, rank + 1), everything(chunks)
            yield Round((Sends(own, Shift(-rank), whole, reduce=True),))
