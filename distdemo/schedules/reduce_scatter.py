"""reduce_scatter: rank r gets the reduction of all ranks' parts r, which are chunk r."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    PATARASUK,
    RING,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Number,
    Round,
    floor_log,
    masks,
    odd,
    others,
    power,
    stood_for,
)


class ReduceScatter(Algorithm):
    """n parts per rank, never cut."""

    op = "reduce_scatter"
    goal = Goal("all", "own", reduced=True)


class Ring(ReduceScatter):
    """Partial sums travel around the ring; the one for rank r starts at its right neighbour.

    Chunk that each of three ranks has just received, and its contributions::

        -   1: 2   0: 1 2  # rank 0
        -   2: 0   1: 2 0  # rank 1
        -   0: 1   2: 0 1  # rank 2
    """

    name = "ring"
    summary = "The sum of one chunk at a time goes to the right neighbour and grows on the way."
    source = f"{PATARASUK}; {THAKUR}, 4.4 (pairwise has the same cost)"
    formulas = RING

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k, rank i passes on chunk i − 1 − k."""
        return shapes.ring(n, -1, reduce=True)


def _busiest_halving(n: int, _: int) -> Number:
    """Return the traffic of rank 0: its partner's tensor, half sums received; the rest sent."""
    core = power(n)
    if core == n:
        return 2 * others(n)
    return Fraction(n + core - 1 + stood_for(n) + n - 1, n)


class Halving(ReduceScatter):
    """Ranks exchange the half that the other is responsible for, and add; far distances first.

    Chunks that each of four ranks is still responsible for, and the number of contributions::

        0 1 2 3: 1   0 1: 2   0: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4  # rank 3
    """

    name = "halving"
    summary = "Halves, quarters, ... are exchanged and added, until each rank has its chunk."
    source = f"{THAKUR}, 4.4 (recursive halving)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(n−1)/n·S, S where e>0", lambda n, _: 1 if odd(n) else others(n)),
        busiest=Formula("2(n−1)/n·S; e>0: (2n+p−2 + Σ min(2^k, e))/n·S", _busiest_halving),
        total=Formula("(n−1 + e/n)S", lambda n, _: n - 1 + Fraction(n - power(n), n)),
        serial=lambda n, _: Fraction(power(n) - 1 + stood_for(n) + odd(n) * (n + 1), n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per bit of the rank's number, highest first."""
        core = power(n)
        yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
        for bit in reversed(masks(core)):
            blocks = partial(shapes.block, width=bit, chunks=n, core=core)
            yield shapes.flip(n, bit, blocks, "halving", reduce=True, to=True)
        yield from shapes.unfold(n, lambda rank: (core + rank,))


ALGORITHMS = (Ring(), Halving())
