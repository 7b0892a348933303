"""all_reduce: every rank gets the reduction of all ranks' tensors."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from distdemo.schedules import shapes
from distdemo.schedules.contract import (
    PATARASUK,
    THAKUR,
    Algorithm,
    Content,
    Formula,
    Formulas,
    Goal,
    Round,
    floor_log,
    masks,
    odd,
    others,
    power,
)


class AllReduce(Algorithm):
    """One tensor per rank, cut into C chunks."""

    op = "all_reduce"
    goal = Goal("all", "all", whole=True, reduced=True)


class Ring(AllReduce):
    """The tensor is cut into n chunks, and each message is one chunk to the right neighbour.

    First partial sums travel and grow; after n−1 rounds rank r has chunk r+1 complete. Then the
    complete chunks travel for another n−1 rounds. Contributions in the chunks of three ranks::

        0     0     0       0     0     0 2     0     0 1 2  0 2    # rank 0
        1     1     1       0 1   1     1       0 1   1      0 1 2  # rank 1
        2     2     2       2     1 2   2       0 1 2 1 2    2      # rank 2
    """

    name = "ring"
    summary = "One chunk at a time goes right: sums grow for n−1 rounds, then travel n−1 more."
    source = f"{PATARASUK}; {THAKUR}, section 5 (ring)"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("2(n−1)/n·S", lambda n, _: 2 * others(n)),
        busiest=Formula("4(n−1)/n·S", lambda n, _: 4 * others(n)),
        total=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * others(n),
    )

    def chunks(self, n: int) -> int:
        """Return one chunk per rank."""
        return n

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k, rank i passes on chunk i − k, in the second half i + 1 − k."""
        yield from shapes.ring(n, 0, reduce=True, phase="reduce-scatter")
        yield from shapes.ring(n, 1, phase="all-gather")


_TO_ALL = Formulas(
    rounds=Formula("n−1", lambda n, _: n - 1),
    sent=Formula("(n−1)S", lambda n, _: n - 1),
    busiest=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
    total=Formula("n(n−1)S", lambda n, _: n * (n - 1)),
    serial=lambda n, _: n - 1,
)
"""Costs if every rank's whole tensor reaches every other rank without being reduced on the way."""


class NaiveRing(AllReduce):
    """Original tensors travel around the ring, and each rank adds those that it receives.

    Messages of three ranks, and the contributions that each then holds::

        sends 0: 0 2   sends 2: 0 1 2  # rank 0
        sends 1: 0 1   sends 0: 0 1 2  # rank 1
        sends 2: 1 2   sends 1: 0 1 2  # rank 2
    """

    name = "naive-ring"
    summary = "Each rank adds the whole tensor it received last to its own sum and passes it on."
    source = "S. Arnold, Writing Distributed Applications with PyTorch, PyTorch tutorials "
    source += "(Our Own Ring-Allreduce)"
    formulas = _TO_ALL

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k, rank i passes on the tensor of rank i − k."""
        for step in range(n - 1):
            content: Content = "last" if step else "original"
            yield Round(shapes.shift(n, 1, lambda _: range(chunks)), True, content, "ring")


class Naive(AllReduce):
    """In round k every rank sends its original tensor to the rank at distance k.

    Contributions held by each of four ranks::

        0   0 3   0 2 3   0 1 2 3  # rank 0
        1   0 1   0 1 3   0 1 2 3  # rank 1
        2   1 2   0 1 2   0 1 2 3  # rank 2
        3   2 3   1 2 3   0 1 2 3  # rank 3
    """

    name = "naive"
    summary = "Every rank sends its whole tensor to every other rank, and each computes the sum."
    source = "folklore; an all-to-all broadcast with sums, as in Grama, Gupta, Karypis, Kumar, "
    source += "Introduction to Parallel Computing, 2003, 4.2"
    formulas = _TO_ALL

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per distance. Texts in which a rank sends to all at once count 1."""
        for distance in range(1, n):
            moves = shapes.shift(n, distance, lambda _: range(chunks))
            yield Round(moves, True, "original", "exchange")


class Aggregator(AllReduce):
    """The ranks send their tensors to rank 0, which adds them and sends the sum to each rank.

    Contributions held by each of three ranks::

        0   0 1   0 1 2   0 1 2   0 1 2  # rank 0
        1   1     1       0 1 2   0 1 2  # rank 1
        2   2     2       2       0 1 2  # rank 2
    """

    name = "aggregator"
    summary = "One central rank collects and adds all tensors, and sends the sum to all ranks."
    source = "the parameter server: Li et al., Scaling Distributed Machine Learning with the "
    source += "Parameter Server, OSDI 2014, with a single server that is a rank itself"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("(n−1)S", lambda n, _: n - 1),
        busiest=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
        total=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * (n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one message per round. Texts in which rank 0 talks to all at once count 2."""
        whole = range(chunks)
        yield from shapes.star(n, lambda _: whole, up=True, reduce=True, phase="all to one")
        yield from shapes.star(n, lambda _: whole, phase="one to all")


class BinaryTree(AllReduce):
    """Rank i's children are 2i + 1 and 2i + 2. Level by level, left children come first.

    Five ranks::

              0
            ┌─┴─┐      up:   3→1, 4→1, 1→0, 2→0
            1   2      down: 0→1, 0→2, 1→3, 1→4
          ┌─┴─┐
          3   4
    """

    name = "binary-tree"
    summary = "Sums go up a binary tree to rank 0, and the result goes back down."
    source = "Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction "
    source += "and scan, Parallel Computing 35(12), 2009 (one tree, not pipelined)"
    formulas = Formulas(
        rounds=Formula("4⌊lg n⌋ − 2·[e=0], n > 1", lambda n, _: 2 * len(_levels(n))),
        sent=Formula("S, 2S from n = 3, 3S from n = 5", lambda n, _: _sent_in_tree(n)),
        busiest=Formula("2S, 4S from n = 3, 6S from n = 5", lambda n, _: 2 * _sent_in_tree(n)),
        total=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * len(_levels(n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield two rounds per level, or one if it has only a left child; then the reverse."""
        whole = range(chunks)
        for ranks in reversed(_levels(n)):
            up = [(rank, (rank - 1) // 2, whole) for rank in ranks]
            yield Round(up, reduce=True, phase="up")
        for ranks in _levels(n):
            yield Round([((rank - 1) // 2, rank, whole) for rank in ranks], phase="down")


def _levels(n: int) -> list[range]:
    """Return the left, then the right children of each level, from the root down."""
    groups = []
    for level in range(1, floor_log(n) + 1):
        first, end = (1 << level) - 1, min((2 << level) - 1, n)
        groups += [range(first, end, 2), range(first + 1, end, 2)]
    return [ranks for ranks in groups if ranks]


def _sent_in_tree(n: int) -> int:
    """Return the most messages that a rank sends: to two children, and below the root a parent."""
    if n < 3:
        return n - 1
    return 2 if n < 5 else 3


class Doubling(AllReduce):
    """Ranks at distances 1, 2, 4, ... exchange whole tensors, and both add.

    Contributions held by each of four ranks::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """

    name = "doubling"
    summary = "Ranks at distances 1, 2, 4, ... exchange whole tensors, both add: fewest rounds."
    source = f"{THAKUR}, 4.5 (recursive doubling)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(lg p + [e>0])S", lambda n, _: floor_log(n) + odd(n)),
        busiest=Formula("2(lg p + [e>0])S", lambda n, _: 2 * (floor_log(n) + odd(n))),
        total=Formula("(p·lg p + 2e)S", lambda n, _: power(n) * floor_log(n) + 2 * (n - power(n))),
        serial=lambda n, _: floor_log(n) + 2 * odd(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per bit of the rank's number."""
        yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
        for bit in masks(power(n)):
            yield shapes.flip(n, bit, lambda _: range(chunks), "doubling", reduce=True)
        yield from shapes.unfold(n, lambda _: range(chunks))


class HalvingDoubling(AllReduce):
    """The tensor is cut into p chunks. Halves, quarters, ... are exchanged, then reassembled.

    Chunks that each of four ranks is still responsible for, and the number of contributions::

        0 1 2 3: 1   0 1: 2   0: 4   0 1: 4   0 1 2 3: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4   0 1: 4   0 1 2 3: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4   2 3: 4   0 1 2 3: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4   2 3: 4   0 1 2 3: 4  # rank 3
    """

    name = "halving-doubling"
    summary = "Halves, quarters, ... are exchanged and added, then the sums are reassembled."
    source = "R. Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004; "
    source += f"{THAKUR}, 4.5"
    formulas = Formulas(
        rounds=Formula("2 lg p + 2·[e>0]", lambda n, _: 2 * (floor_log(n) + odd(n))),
        sent=Formula("(2(p−1)/p + [e>0])S", lambda n, _: 2 * others(power(n)) + odd(n)),
        busiest=Formula(
            "(4(p−1)/p + 2·[e>0])S", lambda n, _: 2 * (2 * others(power(n)) + Fraction(odd(n)))
        ),
        total=Formula("2(n−1)S", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * others(power(n)) + 2 * odd(n),
    )

    def chunks(self, n: int) -> int:
        """Return the largest power of 2 that is at most n."""
        return power(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield one round per bit of the rank's number, highest first, then in reverse."""
        yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
        for bit in reversed(masks(chunks)):
            blocks = partial(shapes.block, width=bit, chunks=chunks)
            yield shapes.flip(n, bit, blocks, "halving", reduce=True, to=True)
        for bit in masks(chunks):
            yield shapes.flip(n, bit, partial(shapes.block, width=bit, chunks=chunks), "doubling")
        yield from shapes.unfold(n, lambda _: range(chunks))


ALGORITHMS = (
    Ring(),
    NaiveRing(),
    Naive(),
    Aggregator(),
    BinaryTree(),
    Doubling(),
    HalvingDoubling(),
)
