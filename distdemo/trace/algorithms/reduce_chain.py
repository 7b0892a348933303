"""reduce up a chain, pipelined in chunks."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.pipelined import FORMULAS, on_the_way, usual_chunks
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class ChainReduce(Algorithm):
    """Sums of chunks follow each other from the last rank to the root.

    Three ranks, two chunks, what each holds of whom::

        0   0     0   0     0 1 2 0     0 1 2 0 1 2  # rank 0
        1   1     1 2 1     1 2   1 2   1 2   1 2    # rank 1
        2   2     2   2     2     2     2     2      # rank 2
    """

    op = "reduce"
    name = "chain"
    summary = "Sums of chunks follow each other from rank to rank: every link is busy at once."
    source = "Pješivac-Grbović et al., Performance analysis of MPI collective operations, Cluster "
    source += "Computing 10(2), 2007 (pipeline)"
    formulas = FORMULAS
    chunked = True

    def chunks(self, n: int) -> int:
        """As many as ranks, 16 at most."""
        return usual_chunks(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round t rank n − 1 − i passes on chunk t − i."""
        for step, links in on_the_way(n, chunks):
            senders = range(n - 1 - links[-1], n - links[0])
            chunk = Window(step - (n - 1), turn=1)
            yield Round((Sends(senders, Shift(-1), chunk, reduce=True),))
