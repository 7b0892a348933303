"""Algorithms of all_gather, broadcast, scatter, gather and all_to_all, which reduce nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    BRUCK,
    CHAN,
    PJESIVAC,
    THAKUR,
    Formula,
    Formulas,
    Goal,
    Round,
    algorithm,
    masks,
    power,
)

# -------------------------------------------------------------------------------------- all_gather

ALL_GATHER = Goal("all_gather", "own", "all")
"""One tensor per rank, never cut. Chunk r is rank r's tensor."""


@algorithm(ALL_GATHER, "ring", f"{THAKUR}, 4.1 (ring)", shapes.RING)
def ring_all_gather(n: int, _: int) -> Iterator[Round]:
    """Each rank passes the last tensor it received to its right neighbour, its own first.

    In round k, rank i passes on chunk i − k, the tensor that it received last.

    Tensors held by each of three ranks::

        0   0 2   0 1 2  # rank 0
        1   0 1   0 1 2  # rank 1
        2   1 2   0 1 2  # rank 2
    """
    return shapes.ring(n, 0)


@algorithm(
    ALL_GATHER,
    "doubling",
    f"{THAKUR}, 4.1 (recursive doubling; beyond a power of 2 with partners, as in 4.5)",
    Formulas(
        Formula("lg p + 2·[e>0]", lambda x: x.lg_p + 2 * (x.e > 0)),
        Formula(
            "(p−1 + f + (n−1)[e>0])/n·S", lambda x: (x.p - 1 + x.f + (x.n - 1) * (x.e > 0)) / x.n
        ),
        Formula(
            "(n+p−2 + f + (n−1)[e>0])/n·S",
            lambda x: (x.n + x.p - 2 + x.f + (x.n - 1) * (x.e > 0)) / x.n,
        ),
        shapes.N1_S,
        Formula("(p−1 + f + n·[e>0])/n·S", lambda x: (x.p - 1 + x.f + x.n * (x.e > 0)) / x.n),
    ),
)
def doubling_all_gather(n: int, _: int) -> Iterator[Round]:
    """Ranks at distances 1, 2, 4, ... exchange all they hold; it doubles if n is a power of 2.

    Four ranks::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """
    core = power(n)
    yield from shapes.fold(n, lambda rank: (rank,), reduce=False)
    for bit in masks(core):
        blocks = partial(shapes.block, width=bit, chunks=n, core=core)
        yield shapes.flip(n, bit, blocks, "doubling")
    yield from shapes.unfold(n, lambda rank: shapes.following(rank + core + 1, n - 1, n))


@algorithm(
    ALL_GATHER, "bruck", f"{BRUCK}; {THAKUR}, 4.1 (Bruck)", shapes.RING._replace(rounds=shapes.LG_N)
)
def bruck_all_gather(n: int, _: int) -> Iterator[Round]:
    """Each rank gets the next chunks from ranks at distances 1, 2, 4, ...: lg n rounds.

    Rank i gets the chunks that follow its own from ranks i + 1, i + 2, i + 4, ...

    Five ranks::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1   1 2   1 2 3 4   1 2 3 4 0  # rank 1
        2   2 3   2 3 4 0   2 3 4 0 1  # rank 2
        3   3 4   3 4 0 1   3 4 0 1 2  # rank 3
        4   4 0   4 0 1 2   4 0 1 2 3  # rank 4
    """
    for width in masks(n):  # in the last round only what is missing
        chunks = partial(shapes.following, count=min(width, n - width), n=n)
        yield Round(shapes.shift(n, -width, chunks))


# --------------------------------------------------------------------------------------- broadcast

BROADCAST = Goal("broadcast", "root", "all", whole=True)
"""The root's tensor, cut into C chunks."""


@algorithm(
    BROADCAST,
    "tree",
    f"{THAKUR}, 4.2; {CHAN} (binomial, or minimum spanning tree)",
    Formulas(shapes.LG_N, shapes.LG_N_S, shapes.LG_N_S, shapes.N1_S, shapes.LG_N_S),
)
def tree_broadcast(n: int, chunks: int) -> Iterator[Round]:
    """Ranks that have the tensor send it on; their number doubles if n is a power of 2.

    Six ranks: ``0→4``; ``0→2``; ``0→1 2→3 4→5``.
    """
    return shapes.tree(n, range(chunks))


@algorithm(
    BROADCAST,
    "flat",
    f"{PJESIVAC} (flat tree)",
    Formulas(shapes.N1, shapes.N1_S, shapes.N1_S, shapes.N1_S, shapes.N1_S),
)
def flat_broadcast(n: int, chunks: int) -> Iterator[Round]:
    """The root sends the whole tensor to one rank after the other.

    ``0→1``, ``0→2``, ``0→3``, ...: the root sends everything.
    """
    return shapes.star(n, lambda _: range(chunks))


@algorithm(
    BROADCAST, "chain", f"{PJESIVAC} (pipeline)", shapes.PIPELINE, cut=shapes.pipeline_chunks
)
def chain_broadcast(n: int, chunks: int) -> Iterator[Round]:
    """Chunks follow each other from rank to rank, so that many links are busy at once.

    In round t, rank i passes on chunk t − i, while it receives the next one.

    Three ranks, two chunks::

        0 1   0 1   0 1   0 1  # rank 0
              0     0 1   0 1  # rank 1
                    0     0 1  # rank 2
    """
    return shapes.pipeline(n, chunks)


@algorithm(
    BROADCAST,
    "scatter-all-gather",
    f"{THAKUR}, 4.2 (van de Geijn); {CHAN}",
    Formulas(
        Formula("lg n + n−1", lambda x: x.lg_n + x.n - 1),
        shapes.TWICE_N1_PARTS,
        Formula("3(n−1)/n·S", lambda x: 3 * (x.n - 1) / x.n),
        Formula("(n−1 + b/n)S", lambda x: x.n - 1 + x.b / x.n),
        shapes.TWICE_N1_PARTS,
    ),
    cut=lambda n: n,
)
def scatter_all_gather(n: int, _: int) -> Iterator[Round]:
    """The root scatters n chunks down a tree, and a ring passes them on to all ranks.

    The all-gather sends chunks also to ranks that have them, such as the root. Chunks held by each
    of three ranks::

        0 1 2   0 1 2   0 1 2   0 1 2   0 1 2  # rank 0
                        1       0 1     0 1 2  # rank 1
                2       2       1 2     0 1 2  # rank 2
    """
    yield from shapes.tree(n, phase="scatter")
    yield from shapes.ring(n, 0, phase="all-gather")


# ------------------------------------------------------------------------------- scatter and gather

SCATTER = Goal("scatter", "root", "own", moved=True)
"""n parts of the root, never cut. Rank r gets part r, which is chunk r."""
GATHER = Goal("gather", "own", "root", moved=True)
"""One tensor per rank, never cut. Chunk r is rank r's tensor."""


@algorithm(
    SCATTER,
    "tree",
    f"{THAKUR}, 4.2 (binomial)",
    Formulas(shapes.LG_N, shapes.N1_PARTS, shapes.N1_PARTS, shapes.B_PARTS, shapes.N1_PARTS),
)
def tree_scatter(n: int, _: int) -> Iterator[Round]:
    """Parts go down a tree, in one message all that are for the ranks below: fewest rounds.

    Parts held by each of five ranks::

        0 1 2 3 4   0 1 2 3   0 1   0  # rank 0
                                    1  # rank 1
                              2 3   2  # rank 2
                                    3  # rank 3
                    4         4     4  # rank 4
    """
    return shapes.tree(n)


@algorithm(
    SCATTER,
    "flat",
    f"{THAKUR}, 4.4 (the linear scatter of the old reduce-scatter)",
    Formulas(shapes.N1, shapes.N1_PARTS, shapes.N1_PARTS, shapes.N1_PARTS, shapes.N1_PARTS),
)
def flat_scatter(n: int, _: int) -> Iterator[Round]:
    """The root sends each rank its part, one after the other: each is sent once.

    ``0→1``, ``0→2``, ``0→3``, ...: every part is sent once.
    """
    return shapes.star(n, lambda rank: (rank,))


@algorithm(
    GATHER,
    "tree",
    f"{THAKUR}, 4.5 (binomial)",
    Formulas(
        shapes.LG_N,
        Formula("max(n−m, m/2)/n·S", lambda x: max(x.n - x.m, x.m / 2) / x.n),
        shapes.N1_PARTS,
        shapes.B_PARTS,
        shapes.N1_PARTS,
    ),
)
def tree_gather(n: int, _: int) -> Iterator[Round]:
    """Ranks pass on all that they have gathered, 1, 2, 4, ... tensors at most: fewest rounds.

    Tensors held by each of five ranks::

        0   0 1   0 1 2 3   0 1 2 3 4  # rank 0
        1                              # rank 1
        2   2 3                        # rank 2
        3                              # rank 3
        4   4     4                    # rank 4
    """
    return shapes.tree(n, up=True)


@algorithm(
    GATHER,
    "flat",
    f"folklore; the linear scatter backwards, {THAKUR}, 4.4",
    Formulas(
        shapes.N1,
        Formula("S/n", lambda x: 1 / x.n),
        shapes.N1_PARTS,
        shapes.N1_PARTS,
        shapes.N1_PARTS,
    ),
)
def flat_gather(n: int, _: int) -> Iterator[Round]:
    """One rank after the other sends its tensor to the root: each is sent once.

    ``1→0``, ``2→0``, ``3→0``, ...: every tensor is sent once.
    """
    return shapes.star(n, lambda rank: (rank,), up=True)


# -------------------------------------------------------------------------------------- all_to_all

ALL_TO_ALL = Goal("all_to_all", "from", "to", moved=True)
"""n parts per rank, never cut. Chunk i·n + j is rank i's part for rank j."""


@algorithm(ALL_TO_ALL, "pairwise", f"{THAKUR}, 4.3 (long messages)", shapes.RING)
def pairwise(n: int, _: int) -> Iterator[Round]:
    """In round k every rank sends the rank at distance k its part.

    In round k, rank i sends a part to rank i + k and receives one from rank i − k.
    """
    for distance in range(1, n):
        yield Round([(i, j := (i + distance) % n, (i * n + j,)) for i in range(n)])


@algorithm(
    ALL_TO_ALL,
    "bruck",
    f"{BRUCK}; {THAKUR}, 4.3 (short messages)",
    Formulas(
        shapes.LG_N,
        shapes.B_PARTS,
        Formula("2b/n·S", lambda x: 2 * x.b / x.n),
        Formula("b·S", lambda x: x.b),
        shapes.B_PARTS,
    ),
)
def bruck_all_to_all(n: int, _: int) -> Iterator[Round]:
    """Parts move 1, 2, 4, ... ranks by the bits of their distance: lg n rounds, more bytes.

    A part for the rank at distance 5 = 1 + 4 moves 1 rank in round 1 and 4 ranks in round 3.
    """
    for bit in masks(n):
        yield Round(shapes.shift(n, bit, partial(_parts_with_bit, bit, n)))


def _parts_with_bit(bit: int, n: int, rank: int) -> list[int]:
    """Return the parts on this rank whose distance from source to target has this bit set.

    A part for the rank at distance d moves by one bit of d per round, lowest first. It has already
    moved by the bits below this one.
    """
    parts = []
    for distance in range(n):
        if distance & bit:
            origin = (rank - distance % bit) % n
            parts.append(origin * n + (origin + distance) % n)
    return parts
