"""Shapes that algorithms have in common, each in either direction: ``up`` is towards the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distdemo.trace.algorithms.contract import masks, power
from distdemo.trace.schedule import Move, Round

ChunksOf = Callable[[int], Sequence[int]]
"""The chunks of a message, by a rank: its sender, unless said otherwise."""


def shift(n: int, by: int, chunks: ChunksOf) -> list[Move]:
    """Return a message from every rank to the one this many places further, around the circle."""
    return [(rank, (rank + by) % n, chunks(rank)) for rank in range(n)]


def ring(n: int, first: int, *, reduce: bool = False, phase: str = "") -> Iterator[Round]:
    """In round k every rank i passes chunk ``first`` + i − k on to its right neighbour."""
    for step in range(n - 1):
        moves = [(i, (i + 1) % n, ((first - step + i) % n,)) for i in range(n)]
        yield Round(moves, reduce, phase=phase)


def tree(
    n: int, chunks: Sequence[int] = (), *, up: bool = False, reduce: bool = False
) -> Iterator[Round]:
    """The binomial tree: half of the ranks hand on to the other half, or get from it.

    Six ranks, from the root down: ``0→4``; ``0→2``; ``0→1 2→3 4→5``.

    Args:
        n: ranks.
        chunks: of every message; empty: those of the ranks on the far side of the link.
        up: from the leaves to the root, the same links in the other order.
        reduce: the receiver combines what comes with what it holds.
    """
    for m in masks(n) if up else reversed(masks(n)):
        links = [(near, near + m) for near in range(0, n - m, 2 * m)]
        yield Round(
            [
                (*((far, near) if up else (near, far)), chunks or range(far, min(far + m, n)))
                for near, far in links
            ],
            reduce,
        )


def star(
    n: int, chunks: ChunksOf, *, up: bool = False, reduce: bool = False, phase: str = ""
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
        ends = (rank, 0) if up else (0, rank)
        yield Round([(*ends, chunks(rank))], reduce, phase=phase)


def pipeline(n: int, chunks: int, *, up: bool = False) -> Iterator[Round]:
    """Chunks follow each other down a chain of ranks; up, sums of chunks come to the root.

    In round t link i carries chunk t − i; link i is the i-th from where the chunks begin.
    """
    for step in range(n - 1 + chunks - 1 if n > 1 else 0):
        links = range(max(0, step - chunks + 1), min(step, n - 2) + 1)
        if up:
            moves = [(n - 1 - link, n - 2 - link, (step - link,)) for link in links]
        else:
            moves = [(link, link + 1, (step - link,)) for link in links]
        yield Round(moves, reduce=up)


# -------------------------------------------------------------------- beyond the largest power of 2
#
# Algorithms that halve or double need p = 2^k ranks. The e = n − p others hand what they have to a
# partner first, rank p + i to rank i, and get the result from it last (Thakur et al. 2005, 4.5;
# there it is even ranks that hand to odd ones, which costs the same).


def fold(n: int, chunks: ChunksOf, *, reduce: bool) -> Iterator[Round]:
    """A round in which the ranks beyond p send to their partners; none if n is a power of 2."""
    core = power(n)
    if core != n:
        moves = [(rank, rank - core, chunks(rank)) for rank in range(core, n)]
        yield Round(moves, reduce, phase="fold")


def unfold(n: int, chunks: ChunksOf) -> Iterator[Round]:
    """A round in which the partners send back; none if n is a power of 2."""
    core = power(n)
    if core != n:
        moves = [(rank, rank + core, chunks(rank)) for rank in range(n - core)]
        yield Round(moves, phase="unfold")


def flip(
    n: int, bit: int, chunks: ChunksOf, phase: str, *, reduce: bool = False, to: bool = False
) -> Round:
    """A round in which each of the p ranks exchanges with the one that differs in a bit.

    Args:
        n: ranks.
        bit: 1, 2, 4, ...
        chunks: of the sender's message.
        phase: of this round.
        reduce: the receiver combines what comes with what it holds.
        to: ``chunks`` gets the receiver instead of the sender.
    """
    moves = [(i, i ^ bit, chunks(i ^ bit if to else i)) for i in range(power(n))]
    return Round(moves, reduce, phase=phase)


def block(rank: int, width: int, chunks: int, core: int = 0) -> list[int]:
    """Return the chunks of the block of ranks that this rank is in.

    Where n is not a power of 2, rank i < n − p, p the largest one, stands for rank p + i too, and
    so for its chunk.

    Args:
        rank: Any rank of the block.
        width: Number of ranks in a block, a power of 2.
        chunks: Number of chunks.
        core: p; 0: no rank stands for another, and the last block ends with the last chunk.
    """
    first = rank // width * width
    own = range(first, min(first + width, chunks))
    beyond = range(first + core, min(first + core + width, chunks)) if core else ()
    return [*own, *beyond]
