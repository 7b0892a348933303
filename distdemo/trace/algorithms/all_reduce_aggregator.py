"""all_reduce by an aggregator: all to one, one to all."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm, Formula, Formulas, Printed
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class AggregatorAllReduce(Algorithm):
    """Every rank in turn sends its tensor to rank 0, which adds up and sends the sum to each.

    Three ranks, what each holds of whom::

        0   0 1   0 1 2   0 1 2   0 1 2  # rank 0
        1   1     1       0 1 2   0 1 2  # rank 1
        2   2     2       2       0 1 2  # rank 2
    """

    op = "all_reduce"
    name = "aggregator"
    summary = "One rank in the middle gathers and adds up all tensors, and sends the sum to all."
    source = "the parameter server: Li et al., Scaling Distributed Machine Learning with the "
    source += "Parameter Server, OSDI 2014, with a single server that is a rank itself"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("(n−1)B", lambda n, _: n - 1),
        busiest=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        printed=(
            Printed(
                Formula("2nB", lambda n, _: 2 * n),
                "It counts the aggregator's own tensor, which goes nowhere; it is right where the "
                "aggregator is a server beside the n ranks.",
            ),
        ),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One link, one message at a time. Texts where rank 0 talks to all at once count 2."""
        whole = everything(chunks)
        for rank in range(1, n):
            own = range(rank, rank + 1)
            yield Round((Sends(own, Shift(-rank), whole, reduce=True),), "all to one")
        for rank in range(1, n):
            yield Round((Sends(range(1), Shift(rank), whole),), "one to all")
