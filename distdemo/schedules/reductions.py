"""Algorithms of all_reduce, reduce_scatter and reduce."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    CHAN,
    PATARASUK,
    PJESIVAC,
    RABENSEIFNER,
    SANDERS,
    THAKUR,
    Formula,
    Formulas,
    Goal,
    Move,
    Round,
    algorithm,
    masks,
    power,
)

# -------------------------------------------------------------------------------------- all_reduce

ALL_REDUCE = Goal("all_reduce", "all", "all", whole=True, reduced=True)
"""One tensor per rank, cut into C chunks."""
_TO_ALL = Formulas(
    shapes.N1,
    shapes.N1_S,
    shapes.TWICE_N1_S,
    Formula("n(n−1)S", lambda x: x.n * (x.n - 1)),
    shapes.N1_S,
)
"""Costs if every rank's whole tensor reaches every other rank without being reduced on the way."""


@algorithm(
    ALL_REDUCE,
    "ring",
    f"{PATARASUK}; {THAKUR}, section 5 (ring)",
    Formulas(
        shapes.TWICE_N1,
        shapes.TWICE_N1_PARTS,
        Formula("4(n−1)/n·S", lambda x: 4 * (x.n - 1) / x.n),
        shapes.TWICE_N1_S,
        shapes.TWICE_N1_PARTS,
    ),
    cut=lambda n: n,
)
def ring_all_reduce(n: int, _: int) -> Iterator[Round]:
    """One chunk at a time goes right: sums grow for n−1 rounds, then travel n−1 more.

    The tensor is cut into n chunks, and each message is one chunk to the right neighbour.
    First partial sums travel and grow; after n−1 rounds rank r has chunk r+1 complete. Then the
    complete chunks travel for another n−1 rounds. Contributions in the chunks of three ranks::

        0     0     0       0     0     0 2     0     0 1 2  0 2    # rank 0
        1     1     1       0 1   1     1       0 1   1      0 1 2  # rank 1
        2     2     2       2     1 2   2       0 1 2 1 2    2      # rank 2
    """
    yield from shapes.ring(n, 0, reduce=True, phase="reduce-scatter")
    yield from shapes.ring(n, 1, phase="all-gather")


@algorithm(
    ALL_REDUCE,
    "naive-ring",
    "S. Arnold, Writing Distributed Applications with PyTorch, PyTorch tutorials "
    "(Our Own Ring-Allreduce)",
    _TO_ALL,
)
def naive_ring(n: int, chunks: int) -> Iterator[Round]:
    """Each rank adds the whole tensor it received last to its own sum and passes it on.

    Messages of three ranks, and the contributions that each then holds::

        sends 0: 0 2   sends 2: 0 1 2  # rank 0
        sends 1: 0 1   sends 0: 0 1 2  # rank 1
        sends 2: 1 2   sends 1: 0 1 2  # rank 2
    """
    for step in range(n - 1):
        moves = shapes.shift(n, 1, lambda _: range(chunks))
        yield Round(moves, True, "last" if step else "original", "ring")


@algorithm(
    ALL_REDUCE,
    "naive",
    "folklore; an all-to-all broadcast with sums, as in Grama, Gupta, Karypis, Kumar, "
    "Introduction to Parallel Computing, 2003, 4.2",
    _TO_ALL,
)
def naive(n: int, chunks: int) -> Iterator[Round]:
    """Every rank sends its whole tensor to every other rank, and each computes the sum.

    In round k every rank sends its original tensor to the rank at distance k.

    Texts in which a rank sends to all at once count 1 round. Contributions held by four ranks::

        0   0 3   0 2 3   0 1 2 3  # rank 0
        1   0 1   0 1 3   0 1 2 3  # rank 1
        2   1 2   0 1 2   0 1 2 3  # rank 2
        3   2 3   1 2 3   0 1 2 3  # rank 3
    """
    for distance in range(1, n):
        moves = shapes.shift(n, distance, lambda _: range(chunks))
        yield Round(moves, True, "original", "exchange")


@algorithm(
    ALL_REDUCE,
    "aggregator",
    "the parameter server: Li et al., Scaling Distributed Machine Learning with the "
    "Parameter Server, OSDI 2014, with a single server that is a rank itself",
    Formulas(shapes.TWICE_N1, shapes.N1_S, shapes.TWICE_N1_S, shapes.TWICE_N1_S, shapes.TWICE_N1_S),
)
def aggregator(n: int, chunks: int) -> Iterator[Round]:
    """One central rank collects and adds all tensors, and sends the sum to all ranks.

    Texts in which rank 0 talks to all at once count 2 rounds. Contributions held by three ranks::

        0   0 1   0 1 2   0 1 2   0 1 2  # rank 0
        1   1     1       0 1 2   0 1 2  # rank 1
        2   2     2       2       0 1 2  # rank 2
    """
    whole = range(chunks)
    yield from shapes.star(n, lambda _: whole, up=True, reduce=True, phase="all to one")
    yield from shapes.star(n, lambda _: whole, phase="one to all")


@algorithm(
    ALL_REDUCE,
    "binary-tree",
    f"{SANDERS} (one tree, not pipelined)",
    Formulas(
        Formula("2t", lambda x: 2 * x.t),
        Formula("(1 + [n>2] + [n>4])S", lambda x: 1 + (x.n > 2) + (x.n > 4)),
        Formula("(2 + 2[n>2] + 2[n>4])S", lambda x: 2 + 2 * (x.n > 2) + 2 * (x.n > 4)),
        shapes.TWICE_N1_S,
        Formula("2t·S", lambda x: 2 * x.t),
    ),
)
def binary_tree(n: int, chunks: int) -> Iterator[Round]:
    """Sums go up a binary tree to rank 0, and the result goes back down.

    Rank i's children are 2i + 1 and 2i + 2. Each rank takes the sum that is ready first, first.

    Five ranks::

              0
            ┌─┴─┐      up:   3→1 2→0, 4→1, 1→0
            1   2      down: 0→1, 1→4, 1→3 0→2
          ┌─┴─┐
          3   4
    """
    ready = [0] * n  # round in which a rank's sum is complete
    children: dict[int, list[int]] = {}  # those that send up, by round
    for rank in reversed(range(n)):
        for child in sorted(range(2 * rank + 1, min(2 * rank + 3, n)), key=ready.__getitem__):
            ready[rank] = max(ready[rank], ready[child]) + 1
            children.setdefault(ready[rank], []).append(child)
    ups = [sorted(children[number]) for number in sorted(children)]
    for ranks in ups:
        up = [(rank, (rank - 1) // 2, range(chunks)) for rank in ranks]
        yield Round(up, reduce=True, phase="up")
    for ranks in reversed(ups):
        yield Round([((rank - 1) // 2, rank, range(chunks)) for rank in ranks], phase="down")


@algorithm(
    ALL_REDUCE,
    "double-tree",
    f"{SANDERS}; NCCL 2.4 (double binary trees)",
    Formulas(
        Formula("4 lg n + 2C − 4", lambda x: 4 * x.lg_n + 2 * x.C - 4),
        Formula("(1 + [n>2]/2 + [n>3]/2)S", lambda x: 1 + Fraction((x.n > 2) + (x.n > 3), 2)),
        Formula("(2 + [n>2] + [n>3])S", lambda x: 2 + (x.n > 2) + (x.n > 3)),
        shapes.TWICE_N1_S,
        Formula("(4 lg n + 2C − 4)/C·S", lambda x: (4 * x.lg_n + 2 * x.C - 4) / x.C),
    ),
    cut=lambda n: min(n + n % 2, 16),
)
def double_tree(n: int, chunks: int) -> Iterator[Round]:
    """Each half of the tensor goes up and down its own binary tree, chunk after chunk.

    Leaves of one tree are in the middle of the other, so all ranks have work. A period is two
    rounds. In period t, a link to a child at depth d of a tree of depth h passes on the chunk
    number t − h + d of its half upwards, then t − d + 1 downwards.
    """
    links = shapes.double_tree(n, chunks)
    deepest = max((link.depth for link in links), default=0)
    for up in (True, False):
        for time in range(2 * (deepest + chunks // 2 - 1) if links else 0):
            period, half = divmod(time, 2)
            moves: list[Move] = []
            for link in links:
                number = period - (deepest - link.depth if up else link.depth - 1)
                if link.half == half and 0 <= number < len(link.chunks):
                    ends = (link.child, link.parent) if up else (link.parent, link.child)
                    moves.append((*ends, (link.chunks[number],)))
            yield Round(moves, reduce=up, phase="up" if up else "down")


@algorithm(
    ALL_REDUCE,
    "doubling",
    f"{THAKUR}, 4.5 (recursive doubling)",
    Formulas(
        Formula("lg p + 2·[e>0]", lambda x: x.lg_p + 2 * (x.e > 0)),
        Formula("(lg p + [e>0])S", lambda x: x.lg_p + (x.e > 0)),
        Formula("2(lg p + [e>0])S", lambda x: 2 * (x.lg_p + (x.e > 0))),
        Formula("(p·lg p + 2e)S", lambda x: x.p * x.lg_p + 2 * x.e),
        Formula("(lg p + 2·[e>0])S", lambda x: x.lg_p + 2 * (x.e > 0)),
    ),
)
def doubling_all_reduce(n: int, chunks: int) -> Iterator[Round]:
    """Ranks at distances 1, 2, 4, ... exchange whole tensors, both add: lg n rounds if n = 2^k.

    Contributions held by each of four ranks::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """
    yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
    for bit in masks(power(n)):
        yield shapes.flip(n, bit, lambda _: range(chunks), "doubling", reduce=True)
    yield from shapes.unfold(n, lambda _: range(chunks))


@algorithm(
    ALL_REDUCE,
    "halving-doubling",
    f"{RABENSEIFNER}; {THAKUR}, 4.5 (beyond a power of 2 with its partners)",
    Formulas(
        Formula("2 lg p + 2·[e>0]", lambda x: 2 * x.lg_p + 2 * (x.e > 0)),
        Formula("(2(p−1)/p + [e>0])S", lambda x: 2 * (x.p - 1) / x.p + (x.e > 0)),
        Formula("(4(p−1)/p + 2·[e>0])S", lambda x: 4 * (x.p - 1) / x.p + 2 * (x.e > 0)),
        shapes.TWICE_N1_S,
        Formula("(2(p−1)/p + 2·[e>0])S", lambda x: 2 * (x.p - 1) / x.p + 2 * (x.e > 0)),
    ),
    cut=power,
)
def halving_doubling(n: int, chunks: int) -> Iterator[Round]:
    """Halves, quarters, ... are exchanged and added, then the sums are reassembled.

    The tensor is cut into p chunks. Halves, quarters, ... are exchanged, then reassembled.

    Chunks that each of four ranks is still responsible for, and the number of contributions::

        0 1 2 3: 1   0 1: 2   0: 4   0 1: 4   0 1 2 3: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4   0 1: 4   0 1 2 3: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4   2 3: 4   0 1 2 3: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4   2 3: 4   0 1 2 3: 4  # rank 3
    """
    yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
    yield from shapes.halve(n, chunks)
    for bit in masks(chunks):
        yield shapes.flip(n, bit, partial(shapes.block, width=bit, chunks=chunks), "doubling")
    yield from shapes.unfold(n, lambda _: range(chunks))


# ---------------------------------------------------------------------------------- reduce_scatter

REDUCE_SCATTER = Goal("reduce_scatter", "all", "own", reduced=True)
"""n parts per rank, never cut. Rank r gets the reduction of all parts r, which are chunk r."""


@algorithm(
    REDUCE_SCATTER, "ring", f"{PATARASUK}; {THAKUR}, 4.4 (pairwise has the same cost)", shapes.RING
)
def ring_reduce_scatter(n: int, _: int) -> Iterator[Round]:
    """The sum of one chunk at a time goes to the right neighbour and grows on the way.

    Chunk that each of three ranks has just received, and its contributions::

        -   1: 2   0: 1 2  # rank 0
        -   2: 0   1: 2 0  # rank 1
        -   0: 1   2: 0 1  # rank 2
    """
    return shapes.ring(n, -1, reduce=True)


@algorithm(
    REDUCE_SCATTER,
    "halving",
    f"{THAKUR}, 4.4 (recursive halving)",
    Formulas(
        Formula("lg p + 2·[e>0]", lambda x: x.lg_p + 2 * (x.e > 0)),
        Formula("(n−1 + [e>0])/n·S", lambda x: (x.n - 1 + (x.e > 0)) / x.n),
        Formula(
            "(n+p−2 + f + n·[e>0])/n·S", lambda x: (x.n + x.p - 2 + x.f + x.n * (x.e > 0)) / x.n
        ),
        Formula("(n−1 + e/n)S", lambda x: x.n - 1 + x.e / x.n),
        Formula(
            "(p−1 + f + (n+1)[e>0])/n·S", lambda x: (x.p - 1 + x.f + (x.n + 1) * (x.e > 0)) / x.n
        ),
    ),
)
def halving(n: int, chunks: int) -> Iterator[Round]:
    """Halves, quarters, ... are exchanged and added, until each rank has its chunk.

    Ranks exchange the half that the other is responsible for, and add; far distances first.

    Chunks that each of four ranks is still responsible for, and the number of contributions::

        0 1 2 3: 1   0 1: 2   0: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4  # rank 3
    """
    core = power(n)
    yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
    for bit in reversed(masks(core)):
        blocks = partial(shapes.block, width=bit, chunks=n, core=core)
        yield shapes.flip(n, bit, blocks, "halving", reduce=True, to=True)
    yield from shapes.unfold(n, lambda rank: (core + rank,))


# ------------------------------------------------------------------------------------------ reduce

REDUCE = Goal("reduce", "all", "root", whole=True, reduced=True)
"""One tensor per rank, cut into C chunks. The root gets the reduction."""


@algorithm(
    REDUCE,
    "tree",
    f"{THAKUR}, 4.5; {CHAN} (binomial, or minimum spanning tree)",
    Formulas(shapes.LG_N, shapes.S, shapes.LG_N_S, shapes.N1_S, shapes.LG_N_S),
)
def tree_reduce(n: int, chunks: int) -> Iterator[Round]:
    """Half of the ranks left, rounded down, send their sums to others, until only the root is left.

    The tree of broadcast, upwards. Six ranks: ``1→0 3→2 5→4``; ``2→0``; ``4→0``.
    """
    return shapes.tree(n, range(chunks), up=True, reduce=True)


@algorithm(
    REDUCE,
    "flat",
    f"{PJESIVAC} (flat tree)",
    Formulas(shapes.N1, shapes.S, shapes.N1_S, shapes.N1_S, shapes.N1_S),
)
def flat_reduce(n: int, chunks: int) -> Iterator[Round]:
    """One rank after the other sends its whole tensor to the root, which adds them.

    ``1→0``, ``2→0``, ``3→0``, ...: the root receives everything.
    """
    return shapes.star(n, lambda _: range(chunks), up=True, reduce=True)


@algorithm(REDUCE, "chain", f"{PJESIVAC} (pipeline)", shapes.PIPELINE, cut=shapes.pipeline_chunks)
def chain_reduce(n: int, chunks: int) -> Iterator[Round]:
    """Sums of chunks follow each other from rank to rank, so that many links are busy at once.

    In round t, rank n − 1 − i passes on chunk t − i: sums of chunks follow each other.

    Contributions in the two chunks of each of three ranks::

        0   0     0   0     0 1 2 0     0 1 2 0 1 2  # rank 0
        1   1     1 2 1     1 2   1 2   1 2   1 2    # rank 1
        2   2     2   2     2     2     2     2      # rank 2
    """
    return shapes.pipeline(n, chunks, up=True)


@algorithm(
    REDUCE,
    "rabenseifner",
    f"{RABENSEIFNER}; {THAKUR}, 4.5 (beyond a power of 2 with its partners)",
    Formulas(
        Formula("2 lg p + [e>0]", lambda x: 2 * x.lg_p + (x.e > 0)),
        Formula("(3/2 − 1/p)S", lambda x: Fraction(3, 2) - 1 / x.p),
        Formula("(3(p−1)/p + [e>0])S", lambda x: 3 * (x.p - 1) / x.p + (x.e > 0)),
        Formula("(n−1 + lg p/2)S", lambda x: x.n - 1 + Fraction(x.lg_p, 2)),
        Formula("(2(p−1)/p + [e>0])S", lambda x: 2 * (x.p - 1) / x.p + (x.e > 0)),
    ),
    cut=power,
)
def rabenseifner_reduce(n: int, chunks: int) -> Iterator[Round]:
    """Halves, quarters, ... are exchanged and added, then the root gathers the sums.

    The tensor is cut into p chunks. After the halving, rank r < p has chunk r complete.

    Chunks that each of four ranks is still responsible for, and the number of contributions::

        0 1 2 3: 1   0 1: 2   0: 4   0 1: 4   0 1 2 3: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4                        # rank 1
        0 1 2 3: 1   2 3: 2   2: 4   2 3: 4               # rank 2
        0 1 2 3: 1   2 3: 2   3: 4                        # rank 3
    """
    yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
    yield from shapes.halve(n, chunks)
    yield from shapes.tree(chunks, up=True, phase="gather")
