"""all_to_all by Bruck's algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from distdemo.trace.algorithms.contract import (
    BRUCK,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    Number,
    bits_set,
    log,
    masks,
)
from distdemo.trace.algorithms.schedule import Round, Sends, Shift, WithBit


def _sent(n: int, _: int) -> Number:
    """A part for the rank d further is sent once for each bit of d."""
    return Fraction(bits_set(n), n)


class BruckAllToAll(Algorithm):
    """A part for the rank 5 = 1 + 4 places further goes 1 place in round 0 and 4 in round 2."""

    op = "all_to_all"
    name = "bruck"
    summary = "Parts go 1, 2, 4, ... places, as the bits of their way say: lg n rounds, more bytes."
    source = f"{BRUCK}; {THAKUR}, 4.3 (short messages)"
    formulas = Formulas(
        rounds=Formula("lg n", lambda n, _: log(n)),
        sent=Formula("bits set in 1..n−1, /n·B; ½ lg n·B where e=0", _sent),
        busiest=Formula(
            "2 · bits set in 1..n−1, /n·B; lg n·B where e=0",
            lambda n, c: 2 * _sent(n, c),
        ),
        total=Formula("bits set in 1..n−1, ·B; ½n lg n·B where e=0", lambda n, c: n * _sent(n, c)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """A bit of the way after the other."""
        for bit in masks(n):
            yield Round((Sends(range(n), Shift(bit), WithBit(bit)),))
