"""broadcast: every rank gets the root's tensor."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms import shapes
from distdemo.trace.algorithms.contract import (
    CHAN,
    PIPELINE,
    PJESIVAC,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    log,
)
from distdemo.trace.schedule import Goal, Round


class Broadcast(Algorithm):
    """The root's tensor, cut in C chunks."""

    op = "broadcast"
    goal = Goal("root", "all", whole=True)


class Tree(Broadcast):
    """Six ranks: ``0→4``; ``0→2``; ``0→1 2→3 4→5``."""

    name = "tree"
    summary = "All who have the tensor send it to one more rank each: twice as many every round."
    source = f"{THAKUR}, 4.2; {CHAN} (binomial, or minimum spanning tree)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("lg n·B", lambda n, _: log(n)),
        busiest=Formula("lg n·B", lambda n, _: log(n)),
        total=Formula("(n−1)B", lambda n, _: n - 1),
        serial=lambda n, _: log(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Down the tree."""
        return shapes.tree(n, range(chunks))


class Flat(Broadcast):
    """``0→1``, ``0→2``, ``0→3``, ...: all of it goes through the root."""

    name = "flat"
    summary = "The root sends the whole tensor to each rank in turn."
    source = f"{PJESIVAC} (flat tree)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)B", lambda n, _: n - 1),
        busiest=Formula("(n−1)B", lambda n, _: n - 1),
        total=Formula("(n−1)B", lambda n, _: n - 1),
        serial=lambda n, _: n - 1,
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One a rank."""
        return shapes.star(n, lambda _: range(chunks))


class Chain(Broadcast):
    """Each rank passes a chunk on while the next one comes.

    Three ranks, two chunks::

        0 1   0 1   0 1   0 1  # rank 0
              0     0 1   0 1  # rank 1
                    0     0 1  # rank 2
    """

    name = "chain"
    summary = "Chunks follow each other from rank to rank: every link is busy at once."
    source = f"{PJESIVAC} (pipeline)"
    formulas = PIPELINE
    chunked = True

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round t rank i passes on chunk t − i."""
        return shapes.pipeline(n, chunks)


ALGORITHMS = (Tree(), Flat(), Chain())
