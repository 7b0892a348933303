"""all_reduce, naive: everyone sends everything to everyone."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm, Formula, Formulas, Printed
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, everything


class NaiveAllReduce(Algorithm):
    """In round k every rank sends the tensor that it began with to the rank k places further.

    Four ranks, what each holds of whom::

        0   0 3   0 2 3   0 1 2 3  # rank 0
        1   0 1   0 1 3   0 1 2 3  # rank 1
        2   1 2   0 1 2   0 1 2 3  # rank 2
        3   2 3   1 2 3   0 1 2 3  # rank 3
    """

    op = "all_reduce"
    name = "naive"
    summary = "Everyone sends its whole tensor to everyone, and each adds up for itself."
    source = "folklore; an all-to-all broadcast with sums, as in Grama, Gupta, Karypis, Kumar, "
    source += "Introduction to Parallel Computing, 2003, 4.2"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)B", lambda n, _: n - 1),
        busiest=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        total=Formula("n(n−1)B", lambda n, _: n * (n - 1)),
        printed=(
            Printed(
                Formula("(n−1)²B", lambda n, _: (n - 1) ** 2),
                "It leaves out one rank's messages: all n ranks send to n−1 others.",
            ),
        ),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One for each distance. Texts where a rank talks to all others at once count 1."""
        for distance in range(1, n):
            whole = everything(chunks)
            yield Round(
                (Sends(range(n), Shift(distance), whole, reduce=True, original=True),), "exchange"
            )
