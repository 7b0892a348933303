"""broadcast: every rank gets the root's tensor."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    CHAN,
    PIPELINE,
    PJESIVAC,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Round,
    log,
)


class Broadcast(Algorithm):
    """The root's tensor, cut into C chunks."""

    op = "broadcast"
    goal = Goal("root", "all", whole=True)


class Tree(Broadcast):
    """Six ranks: ``0→4``; ``0→2``; ``0→1 2→3 4→5``."""

    name = "tree"
    summary = (
        "Every rank that has the tensor sends it to one more: their number doubles each round."
    )
    source = f"{THAKUR}, 4.2; {CHAN} (binomial, or minimum spanning tree)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("lg n·S", lambda n, _: log(n)),
        busiest=Formula("lg n·S", lambda n, _: log(n)),
        total=Formula("(n−1)S", lambda n, _: n - 1),
        serial=lambda n, _: log(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield rounds down the tree."""
        return shapes.tree(n, range(chunks))


class Flat(Broadcast):
    """``0→1``, ``0→2``, ``0→3``, ...: the root sends everything."""

    name = "flat"
    summary = "The root sends the whole tensor to one rank after the other."
    source = f"{PJESIVAC} (flat tree)"
    formulas = Formulas(
        rounds=Formula("n−1", lambda n, _: n - 1),
        sent=Formula("(n−1)S", lambda n, _: n - 1),
        busiest=Formula("(n−1)S", lambda n, _: n - 1),
        total=Formula("(n−1)S", lambda n, _: n - 1),
        serial=lambda n, _: n - 1,
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per rank."""
        return shapes.star(n, lambda _: range(chunks))


class Chain(Broadcast):
    """Each rank passes on a chunk while it receives the next one.

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
        """In round t, rank i passes on chunk t − i."""
        return shapes.pipeline(n, chunks)


ALGORITHMS = (Tree(), Flat(), Chain())
