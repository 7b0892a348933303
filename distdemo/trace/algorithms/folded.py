"""What to do with ranks beyond the largest power of 2.

Algorithms that halve or double need p = 2^k ranks. The e = n − p others hand what they have to a
partner first, rank p + i to rank i, and get the result from it last (Thakur et al. 2005, 4.5; there
it is even ranks that hand to odd ones, which costs the same).
"""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import masks, power
from distdemo.trace.algorithms.schedule import Chunks, Flip, Round, Sends, Shift


def fold(n: int, chunks: Chunks, *, reduce: bool) -> Iterator[Round]:
    """A round in which the ranks beyond p send to their partners; none if n is a power of 2."""
    core = power(n)
    if core != n:
        yield Round((Sends(range(core, n), Shift(-core), chunks, reduce),), "fold")


def unfold(n: int, chunks: Chunks) -> Iterator[Round]:
    """A round in which the partners send back; none if n is a power of 2."""
    core = power(n)
    if core != n:
        yield Round((Sends(range(n - core), Shift(core), chunks),), "unfold")


def flip(n: int, bit: int, chunks: Chunks, phase: str, *, reduce: bool = False) -> Round:
    """A round in which each of the p ranks exchanges with the one that differs in a bit."""
    return Round((Sends(range(power(n)), Flip(bit), chunks, reduce),), phase)


def stood_for(n: int) -> int:
    """Ranks beyond p that rank 0's block stands for, over all blocks from 1 rank to p / 2."""
    core = power(n)
    return sum(min(bit, n - core) for bit in masks(core))
