"""broadcast down a chain, pipelined in chunks."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.pipelined import FORMULAS, on_the_way, usual_chunks
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, Window


class ChainBroadcast(Algorithm):
    """Each rank passes a chunk on while the next one comes.

    Three ranks, two chunks::

        0 1   0 1   0 1   0 1  # rank 0
              0     0 1   0 1  # rank 1
                    0     0 1  # rank 2
    """

    op = "broadcast"
    name = "chain"
    summary = "Chunks follow each other from rank to rank: every link is busy at once."
    source = "Pješivac-Grbović et al., Performance analysis of MPI collective operations, Cluster "
    source += "Computing 10(2), 2007 (pipeline)"
    formulas = FORMULAS
    chunked = True

    def chunks(self, n: int) -> int:
        """As many as ranks, 16 at most."""
        return usual_chunks(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round t rank i passes on chunk t − i."""
        for step, links in on_the_way(n, chunks):
            yield Round((Sends(links, Shift(1), Window(step, turn=-1)),))
