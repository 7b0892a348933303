"""all_gather: every rank gets all ranks' tensors. Chunk r is rank r's tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    BRUCK,
    RING,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Number,
    Round,
    floor_log,
    log,
    masks,
    odd,
    others,
    power,
    stood_for,
)


class AllGather(Algorithm):
    """One tensor per rank, never cut."""

    op = "all_gather"
    goal = Goal("own", "all")


class Ring(AllGather):
    """Each rank passes on the tensor that it received last.

    Tensors held by each of three ranks::

        0   0 2   0 1 2  # rank 0
        1   0 1   0 1 2  # rank 1
        2   1 2   0 1 2  # rank 2
    """

    name = "ring"
    summary = "Each rank passes the last tensor it received to its right neighbour, its own first."
    source = f"{THAKUR}, 4.1 (ring)"
    formulas = RING

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k, rank i passes on chunk i − k."""
        return shapes.ring(n, 0)


def _sent_doubling(n: int, _: int = 0) -> Number:
    """Return what rank 0 sends: its (folded) block at each doubling; then all chunks but one."""
    core = power(n)
    if core == n:
        return others(n)
    return Fraction(core - 1 + stood_for(n) + n - 1, n)


class Doubling(AllGather):
    """Ranks at distances 1, 2, 4, ... exchange everything they hold.

    Four ranks::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """

    name = "doubling"
    summary = "Ranks at distances 1, 2, 4, ... exchange all they hold, which doubles each time."
    source = f"{THAKUR}, 4.1 (recursive doubling; beyond a power of 2 with partners, as in 4.5)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(n−1)/n·S; e>0: (n+p−2 + Σ min(2^k, e))/n·S", _sent_doubling),
        busiest=Formula(
            "2(n−1)/n·S; e>0: (2n+p−3 + Σ min(2^k, e))/n·S",
            lambda n, _: _sent_doubling(n) + others(n),
        ),
        total=Formula("(n−1)S", lambda n, _: n - 1),
        serial=lambda n, _: Fraction(power(n) - 1 + stood_for(n) + odd(n) * n, n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield a round per bit of the rank, lowest first; partners get the rest at the end."""
        core = power(n)
        yield from shapes.fold(n, lambda rank: (rank,), reduce=False)
        for bit in masks(core):
            blocks = partial(shapes.block, width=bit, chunks=n, core=core)
            yield shapes.flip(n, bit, blocks, "doubling")
        yield from shapes.unfold(n, lambda i: [(core + i + k) % n for k in range(1, n)])


class Bruck(AllGather):
    """Rank i gets the chunks that follow its own from ranks i + 1, i + 2, i + 4, ...

    Five ranks::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1   1 2   1 2 3 4   1 2 3 4 0  # rank 1
        2   2 3   2 3 4 0   2 3 4 0 1  # rank 2
        3   3 4   3 4 0 1   3 4 0 1 2  # rank 3
        4   4 0   4 0 1 2   4 0 1 2 3  # rank 4
    """

    name = "bruck"
    summary = "Each rank gets the next chunks from ranks at distances 1, 2, 4, ...: lg n rounds."
    source = f"{BRUCK}; {THAKUR}, 4.1 (Bruck)"
    formulas = replace(RING, rounds=Formula("lg n", lambda n, _: log(n)))

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield rounds in which a rank sends all it holds, in the last one only what's missing."""
        for have in masks(n):
            width = min(have, n - have)
            yield Round(shapes.shift(n, -have, partial(_following, width, n)))


def _following(width: int, n: int, rank: int) -> list[int]:
    """Return the rank's own chunk and those that follow it."""
    return [(rank + offset) % n for offset in range(width)]


ALGORITHMS = (Ring(), Doubling(), Bruck())
