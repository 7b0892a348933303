"""Shapes that algorithms have in common, each in either direction: ``up`` is towards the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from distdemo.trace.algorithms.contract import masks, power
from distdemo.trace.schedule import Block, Chunks, Flip, Round, Sends, Shift, Window


def ring(n: int, first: int, *, reduce: bool = False, phase: str = "") -> Iterator[Round]:
    """In round k every rank i passes chunk ``first`` + i − k on to its right neighbour."""
    for step in range(n - 1):
        yield Round((Sends(range(n), Shift(1), Window(first - step), reduce),), phase)


def tree(
    n: int, chunks: Chunks | None = None, *, up: bool = False, reduce: bool = False
) -> Iterator[Round]:
    """The binomial tree: half of the ranks hand on to the other half, or get from it.

    Six ranks, from the root down: ``0→4``; ``0→2``; ``0→1 2→3 4→5``.

    Args:
        n: ranks.
        chunks: of every message; None: those of the ranks on the far side of the link.
        up: from the leaves to the root, the same links in the other order.
        reduce: the receiver combines what comes with what it holds.
    """
    for m in masks(n) if up else reversed(masks(n)):
        senders = range(m, n, 2 * m) if up else range(0, n - m, 2 * m)
        carried = chunks or Block(m, receivers=not up)
        yield Round((Sends(senders, Shift(-m if up else m), carried, reduce),))


def star(
    n: int,
    chunks: Callable[[int], Chunks],
    *,
    up: bool = False,
    reduce: bool = False,
    phase: str = "",
) -> Iterator[Round]:
    """The root and one rank after the other: ``0→1``, ``0→2``, ...; up ``1→0``, ``2→0``, ...

    Args:
        n: ranks.
        chunks: of the message to, or from, this rank.
        up: from each rank to the root.
        reduce: the receiver combines what comes with what it holds.
        phase: of these rounds.
    """
    for rank in range(1, n):
        senders = range(rank, rank + 1) if up else range(1)
        yield Round((Sends(senders, Shift(-rank if up else rank), chunks(rank), reduce),), phase)


def pipeline(n: int, chunks: int, *, up: bool = False) -> Iterator[Round]:
    """Chunks follow each other down a chain of ranks; up, sums of chunks come to the root.

    In round t link i carries chunk t − i; link i is the i-th from where the chunks begin.
    """
    for step in range(n - 1 + chunks - 1 if n > 1 else 0):
        first, last = max(0, step - chunks + 1), min(step, n - 2)
        if up:
            senders, chunk = range(n - 1 - last, n - first), Window(step - (n - 1), turn=1)
        else:
            senders, chunk = range(first, last + 1), Window(step, turn=-1)
        yield Round((Sends(senders, Shift(-1 if up else 1), chunk, reduce=up),))


# -------------------------------------------------------------------- beyond the largest power of 2
#
# Algorithms that halve or double need p = 2^k ranks. The e = n − p others hand what they have to a
# partner first, rank p + i to rank i, and get the result from it last (Thakur et al. 2005, 4.5;
# there it is even ranks that hand to odd ones, which costs the same).


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
