"""reduce: the root gets the reduction of all ranks' tensors."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import (
    CHAN,
    PIPELINE,
    PJESIVAC,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    log,
    masks,
    pipeline,
    pipeline_chunks,
    several,
)
from distdemo.trace.schedule import Round, Sends, Shift, Task, Window, everything


class Reduce(Algorithm):
    """One tensor a rank, cut in C chunks."""

    op = "reduce"
    task = Task("all", "root", whole=True, reduced=True)


class Tree(Reduce):
    """The broadcast's tree, backwards: half of those who have a sum hand it to the other half.

    Six ranks: ``4→0 5→1``; ``2→0 3→1``; ``1→0``.
    """

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


class Flat(Reduce):
    """``1→0``, ``2→0``, ``3→0``, ...: all of it goes through the root."""

    name = "flat"
    summary = "Each rank in turn sends its whole tensor to the root, which adds up."
    source = f"{PJESIVAC} (flat tree)"
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


class Chain(Reduce):
    """Sums of chunks follow each other from the last rank to the root.

    Three ranks, two chunks, what each holds of whom::

        0   0     0   0     0 1 2 0     0 1 2 0 1 2  # rank 0
        1   1     1 2 1     1 2   1 2   1 2   1 2    # rank 1
        2   2     2   2     2     2     2     2      # rank 2
    """

    name = "chain"
    summary = "Sums of chunks follow each other from rank to rank: every link is busy at once."
    source = f"{PJESIVAC} (pipeline)"
    formulas = PIPELINE
    chunked = True

    def chunks(self, n: int) -> int:
        """As many as ranks, 16 at most."""
        return pipeline_chunks(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round t rank n − 1 − i passes on chunk t − i."""
        for step, links in pipeline(n, chunks):
            senders = range(n - 1 - links[-1], n - links[0])
            chunk = Window(step - (n - 1), turn=1)
            yield Round((Sends(senders, Shift(-1), chunk, reduce=True),))


ALGORITHMS = (Tree(), Flat(), Chain())
