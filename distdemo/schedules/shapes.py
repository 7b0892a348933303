"""Communication patterns shared by algorithms; ``up`` reverses one towards the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from distdemo.schedules.contract import Formula, Formulas, Move, Round, masks, power

ChunksOf = Callable[[int], Sequence[int]]
"""Function that returns the chunks of a message by rank, which is the sender by default."""

# Formulas of several algorithms
N1 = Formula("n−1", lambda x: x.n - 1)
TWICE_N1 = Formula("2(n−1)", lambda x: 2 * (x.n - 1))
LG_N = Formula("lg n", lambda x: x.lg_n)
S = Formula("S", lambda _: 1)
N1_S = Formula("(n−1)S", lambda x: x.n - 1)
TWICE_N1_S = Formula("2(n−1)S", lambda x: 2 * (x.n - 1))
LG_N_S = Formula("lg n·S", lambda x: x.lg_n)
N1_PARTS = Formula("(n−1)/n·S", lambda x: (x.n - 1) / x.n)
TWICE_N1_PARTS = Formula("2(n−1)/n·S", lambda x: 2 * (x.n - 1) / x.n)
B_PARTS = Formula("b/n·S", lambda x: x.b / x.n)

RING = Formulas(N1, N1_PARTS, TWICE_N1_PARTS, N1_S, N1_PARTS)
"""Costs if every rank sends and receives one part in each round."""
PIPELINE = Formulas(
    Formula("n−1 + C−1", lambda x: x.n - 1 + x.C - 1),
    S,
    Formula("min(n−1, 2)·S", lambda x: min(x.n - 1, Fraction(2))),
    N1_S,
    Formula("(n−1 + C−1)/C·S", lambda x: (x.n - 1 + x.C - 1) / x.C),
)
"""Costs if chunks follow each other along a chain of ranks."""


def pipeline_chunks(n: int) -> int:
    """Return the number of chunks: more cost α, fewer leave ranks idle at both ends."""
    return min(n, 16)


def shift(n: int, by: int, chunks: ChunksOf) -> list[Move]:
    """Return one message from every rank to the rank at this distance, modulo n."""
    return [(rank, (rank + by) % n, chunks(rank)) for rank in range(n)]


def ring(n: int, first: int, *, reduce: bool = False, phase: str = "") -> Iterator[Round]:
    """Yield rounds of a ring: in round k, rank i sends chunk ``first`` + i − k to its right."""
    for step in range(n - 1):
        moves = [(i, (i + 1) % n, ((first - step + i) % n,)) for i in range(n)]
        yield Round(moves, reduce, phase=phase)


def tree(
    n: int,
    chunks: Sequence[int] = (),
    *,
    up: bool = False,
    reduce: bool = False,
    phase: str = "",
) -> Iterator[Round]:
    """Yield the rounds of a binomial tree.

    Six ranks, from the root down: ``0→4``; ``0→2``; ``0→1 2→3 4→5``.

    Args:
        n: Number of ranks.
        chunks: Chunks of every message; if empty, those of the ranks on the far side of the link.
        up: True to go from the leaves to the root, over the same links in reverse order.
        reduce: True if the receiver combines the message with what it holds.
        phase: Phase of these rounds.
    """
    for m in masks(n) if up else reversed(masks(n)):
        links = [(near, near + m) for near in range(0, n - m, 2 * m)]
        yield Round(
            [
                (*((far, near) if up else (near, far)), chunks or range(far, min(far + m, n)))
                for near, far in links
            ],
            reduce,
            phase=phase,
        )


def star(
    n: int, chunks: ChunksOf, *, up: bool = False, reduce: bool = False, phase: str = ""
) -> Iterator[Round]:
    """Yield one message per round: ``0→1``, ``0→2``, ..., or with ``up`` ``1→0``, ``2→0``, ...

    Args:
        n: Number of ranks.
        chunks: Chunks of the message to or from this rank.
        up: True to send from each rank to the root.
        reduce: True if the receiver combines the message with what it holds.
        phase: Phase of these rounds.
    """
    for rank in range(1, n):
        ends = (rank, 0) if up else (0, rank)
        yield Round([(*ends, chunks(rank))], reduce, phase=phase)


def pipeline(n: int, chunks: int, *, up: bool = False) -> Iterator[Round]:
    """Yield rounds in which chunks follow each other down a chain, or with ``up`` sums go up.

    In round t link i carries chunk t − i; links are numbered from the start of the chain.
    """
    for step in range(n - 1 + chunks - 1 if n > 1 else 0):
        links = range(max(0, step - chunks + 1), min(step, n - 2) + 1)
        if up:
            moves = [(n - 1 - link, n - 2 - link, (step - link,)) for link in links]
        else:
            moves = [(link, link + 1, (step - link,)) for link in links]
        yield Round(moves, reduce=up)


# ------------------------------------------------------------------------------------- double tree


class Link(NamedTuple):
    """Link of a tree: ranks, the child's depth, the chunks, and the half of a period (0 or 1)."""

    child: int
    parent: int
    depth: int
    chunks: Sequence[int]
    half: int


def double_tree(n: int, chunks: int) -> list[Link]:
    """Return the links of two binary trees, each of which carries half of the chunks.

    The second tree is the first one mirrored, so odd ranks are leaves of the first, and of the
    second even ranks are, except rank 0, the root of both if n is odd. So no rank has more than two
    children and two parents in both trees together. Links to the same parent, or from the same
    child, are in different halves of a period (Sanders, Speck, Träff 2009, who colour them). If n
    is even, the trees are those of NCCL, ``src/graph/trees.cc``; if n is odd, so is the first, but
    NCCL shifts the second by a rank instead of mirroring it. Six ranks::

            0                 5
            4                 1
          ┌─┴─┐             ┌─┴─┐
          2   5             3   0
        ┌─┴─┐             ┌─┴─┐
        1   3             4   2
    """

    def second(rank: int) -> int:
        return (n - rank) % n if n % 2 else n - 1 - rank

    parent = {rank: _parent(rank, n) for rank in range(1, n)}
    depth = [0] * n
    for rank in sorted(parent, key=lambda rank: -(rank & -rank)):  # parents first
        depth[rank] = depth[parent[rank]] + 1
    half = chunks // 2
    parent = {rank: parent[rank] for rank in sorted(parent, key=depth.__getitem__)}
    trees = [
        [(c, u, depth[c], range(half)) for c, u in parent.items()],
        [(second(c), second(u), depth[c], range(half, chunks)) for c, u in parent.items()],
    ]
    return _in_halves([link for links in zip(*trees, strict=True) for link in links])


def _parent(rank: int, n: int) -> int:
    """Return the parent of a rank, not 0, in the first tree: its lowest bit moves up by one."""
    bit = rank & -rank
    parent = (rank ^ bit) | (bit << 1)
    return parent if parent < n else rank ^ bit


def _in_halves(links: Sequence[tuple[int, int, int, Sequence[int]]]) -> list[Link]:
    """Return the links with their halves, which alternate along each path of links.

    At most two links share a child, and at most two a parent. The links are those of two trees in
    turn, from the roots down. A path begins with its tree's half, so that both halves are in use.
    """
    sharing: dict[int, list[int]] = {place: [] for place in range(len(links))}
    for ends in ([child for child, *_ in links], [parent for _, parent, *_ in links]):
        by_rank: dict[int, list[int]] = {}
        for place, rank in enumerate(ends):
            by_rank.setdefault(rank, []).append(place)
        for one, other in (places for places in by_rank.values() if len(places) == 2):
            sharing[one].append(other)
            sharing[other].append(one)
    halves: dict[int, int] = {}
    for start in sharing:
        pending = [(start, start % 2)]
        while pending:
            place, half = pending.pop()
            if place not in halves:
                halves[place] = half
                pending += [(other, 1 - half) for other in sharing[place]]
    return [Link(*link, halves[place]) for place, link in enumerate(links)]


# -------------------------------------------------------------------- beyond the largest power of 2
#
# Algorithms that halve or double need p = 2^k ranks. The other e = n − p ranks first send their
# data to a partner, rank p + i to rank i, and finally get the result from it (Thakur et al. 2005,
# 4.5, where even ranks send to odd ones, which costs the same).


def fold(n: int, chunks: ChunksOf, *, reduce: bool) -> Iterator[Round]:
    """Yield a round in which the ranks beyond p send to their partners, if there are any."""
    core = power(n)
    if core != n:
        moves = [(rank, rank - core, chunks(rank)) for rank in range(core, n)]
        yield Round(moves, reduce, phase="fold")


def unfold(n: int, chunks: ChunksOf) -> Iterator[Round]:
    """Yield a round in which the partners send back, if there are any."""
    core = power(n)
    if core != n:
        moves = [(rank, rank + core, chunks(rank)) for rank in range(n - core)]
        yield Round(moves, phase="unfold")


def flip(
    n: int, bit: int, chunks: ChunksOf, phase: str, *, reduce: bool = False, to: bool = False
) -> Round:
    """Return a round in which each of the p ranks exchanges with the one that differs in a bit.

    Args:
        n: Number of ranks.
        bit: Bit: 1, 2, 4, ...
        chunks: Chunks of the sender's message.
        phase: Phase of this round.
        reduce: True if the receiver combines the message with what it holds.
        to: True if ``chunks`` takes the receiver instead of the sender.
    """
    moves = [(i, i ^ bit, chunks(i ^ bit if to else i)) for i in range(power(n))]
    return Round(moves, reduce, phase=phase)


def halve(n: int, chunks: int) -> Iterator[Round]:
    """Yield the rounds in which p ranks exchange and add halves, quarters, ... of p chunks."""
    for bit in reversed(masks(chunks)):
        blocks = partial(block, width=bit, chunks=chunks)
        yield flip(n, bit, blocks, "halving", reduce=True, to=True)


def block(rank: int, width: int, chunks: int, core: int = 0) -> list[int]:
    """Return the chunks of the block of ranks that contains this rank.

    If n isn't a power of 2 and p is the largest one below it, rank i < n − p also represents rank
    p + i and its chunk.

    Args:
        rank: Any rank of the block.
        width: Number of ranks in a block, a power of 2.
        chunks: Number of chunks.
        core: p; if 0, no rank represents another, and the last block ends with the last chunk.
    """
    first = rank // width * width
    own = range(first, min(first + width, chunks))
    beyond = range(first + core, min(first + core + width, chunks)) if core else ()
    return [*own, *beyond]


def following(rank: int, count: int, n: int) -> list[int]:
    """Return the chunk of this number and those that follow it, modulo n."""
    return [(rank + offset) % n for offset in range(count)]
