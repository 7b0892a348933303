"""all_to_all: every rank has a part for every rank. Chunk i·n + j is rank i's part for rank j."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    BITS,
    BRUCK,
    RING,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Goal,
    Round,
    bits_set,
    log,
    masks,
)


class AllToAll(Algorithm):
    """n parts per rank, never cut."""

    op = "all_to_all"
    goal = Goal("from", "to", moved=True)


class Pairwise(AllToAll):
    """In round k, rank i sends a part to rank i + k and receives one from rank i − k."""

    name = "pairwise"
    summary = "In round k every rank sends the rank at distance k its part."
    source = f"{THAKUR}, 4.3 (long messages)"
    formulas = RING

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per distance."""
        for distance in range(1, n):
            yield Round([(i, j := (i + distance) % n, (i * n + j,)) for i in range(n)])


class Bruck(AllToAll):
    """A part for the rank at distance 5 = 1 + 4 moves 1 rank in round 1 and 4 ranks in round 3."""

    name = "bruck"
    summary = (
        "Parts move 1, 2, 4, ... ranks by the bits of their distance: lg n rounds, more bytes."
    )
    source = f"{BRUCK}; {THAKUR}, 4.3 (short messages)"
    formulas = Formulas(  # a part for the rank at distance d is sent once per set bit of d
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=BITS,
        busiest=Formula(
            "2 · bits set in 1..n−1, /n·S; lg n·S where e=0",
            lambda n, _: Fraction(2 * bits_set(n), n),
        ),
        total=Formula("bits set in 1..n−1, ·S; n(lg n)/2·S where e=0", lambda n, _: bits_set(n)),
        serial=lambda n, _: Fraction(bits_set(n), n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per bit of the distance."""
        for bit in masks(n):
            yield Round(shapes.shift(n, bit, partial(_parts_with_bit, bit, n)))


def _parts_with_bit(bit: int, n: int, rank: int) -> list[int]:
    """Return the parts on this rank whose distance from source to target has this bit set.

    A part for the rank at distance d moves by one bit of d per round, lowest first. It has already
    moved by the bits below this one.
    """
    distances = (distance for distance in range(n) if distance & bit)
    begun = ((distance, (rank - distance % bit) % n) for distance in distances)
    return [origin * n + (origin + distance) % n for distance, origin in begun]


ALGORITHMS = (Pairwise(), Bruck())
