"""all_reduce: every rank gets the reduction of all ranks' tensors."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from distdemo.trace.algorithms import shapes
from distdemo.trace.algorithms.contract import (
    PATARASUK,
    THAKUR,
    Algorithm,
    Formula,
    Formulas,
    floor_log,
    masks,
    odd,
    others,
    power,
)
from distdemo.trace.records import Content
from distdemo.trace.schedule import Goal, Round


class AllReduce(Algorithm):
    """One tensor a rank, cut in C chunks."""

    op = "all_reduce"
    goal = Goal("all", "all", whole=True, reduced=True)


class Ring(AllReduce):
    """The tensor is cut in n chunks, and all that ever travels is a chunk, to the right neighbour.

    First sums travel and grow; after n−1 rounds rank r has chunk r+1 complete. Then these travel
    on, n−1 rounds again. Chunks of three ranks, and what each holds of whom::

        0     0     0       0     0     0 2     0     0 1 2  0 2    # rank 0
        1     1     1       0 1   1     1       0 1   1      0 1 2  # rank 1
        2     2     2       2     1 2   2       0 1 2 1 2    2      # rank 2
    """

    name = "ring"
    summary = "A chunk at a time to the right neighbour: sums grow for n−1 rounds, then travel on."
    source = f"{PATARASUK}; {THAKUR}, section 5 (ring)"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("2(n−1)/n·B", lambda n, _: 2 * others(n)),
        busiest=Formula("4(n−1)/n·B", lambda n, _: 4 * others(n)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * others(n),
    )

    def chunks(self, n: int) -> int:
        """One a rank."""
        return n

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k rank i passes on chunk i − k; in the second half i + 1 − k."""
        yield from shapes.ring(n, 0, reduce=True, phase="reduce-scatter")
        yield from shapes.ring(n, 1, phase="all-gather")


_TO_ALL = Formulas(
    rounds=Formula("n−1", lambda n, _: n - 1),
    sent=Formula("(n−1)B", lambda n, _: n - 1),
    busiest=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
    total=Formula("n(n−1)B", lambda n, _: n * (n - 1)),
    serial=lambda n, _: n - 1,
)
"""Every rank's whole tensor gets to every other rank, and none of them is added on the way."""


class NaiveRing(AllReduce):
    """Whole tensors travel around the ring, as they are, and each rank adds what passes by.

    Three ranks; what each sends, and what it then holds of whom::

        sends 0: 0 2   sends 2: 0 1 2  # rank 0
        sends 1: 0 1   sends 0: 0 1 2  # rank 1
        sends 2: 1 2   sends 1: 0 1 2  # rank 2
    """

    name = "naive-ring"
    summary = "Each passes on the whole tensor that it got last, and adds it to its own sum."
    source = "S. Arnold, Writing Distributed Applications with PyTorch, PyTorch tutorials "
    source += "(Our Own Ring-Allreduce)"
    formulas = _TO_ALL

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """In round k rank i passes on the tensor of rank i − k."""
        for step in range(n - 1):
            content: Content = "last" if step else "original"
            yield Round(shapes.shift(n, 1, lambda _: range(chunks)), True, content, "ring")


class Naive(AllReduce):
    """In round k every rank sends the tensor that it began with to the rank k places further.

    Four ranks, what each holds of whom::

        0   0 3   0 2 3   0 1 2 3  # rank 0
        1   0 1   0 1 3   0 1 2 3  # rank 1
        2   1 2   0 1 2   0 1 2 3  # rank 2
        3   2 3   1 2 3   0 1 2 3  # rank 3
    """

    name = "naive"
    summary = "Everyone sends its whole tensor to everyone, and each adds up for itself."
    source = "folklore; an all-to-all broadcast with sums, as in Grama, Gupta, Karypis, Kumar, "
    source += "Introduction to Parallel Computing, 2003, 4.2"
    formulas = _TO_ALL

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One for each distance. Texts where a rank talks to all others at once count 1."""
        for distance in range(1, n):
            moves = shapes.shift(n, distance, lambda _: range(chunks))
            yield Round(moves, True, "original", "exchange")


class Aggregator(AllReduce):
    """Every rank in turn sends its tensor to rank 0, which adds up and sends the sum to each.

    Three ranks, what each holds of whom::

        0   0 1   0 1 2   0 1 2   0 1 2  # rank 0
        1   1     1       0 1 2   0 1 2  # rank 1
        2   2     2       2       0 1 2  # rank 2
    """

    name = "aggregator"
    summary = "One rank in the middle gathers and adds up all tensors, and sends the sum to all."
    source = "the parameter server: Li et al., Scaling Distributed Machine Learning with the "
    source += "Parameter Server, OSDI 2014, with a single server that is a rank itself"
    formulas = Formulas(
        rounds=Formula("2(n−1)", lambda n, _: 2 * (n - 1)),
        sent=Formula("(n−1)B", lambda n, _: n - 1),
        busiest=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * (n - 1),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One link, one message at a time. Texts where rank 0 talks to all at once count 2."""
        whole = range(chunks)
        yield from shapes.star(n, lambda _: whole, up=True, reduce=True, phase="all to one")
        yield from shapes.star(n, lambda _: whole, phase="one to all")


class BinaryTree(AllReduce):
    """Rank i's children are 2i + 1 and 2i + 2; level by level, the left child before the right one.

    Five ranks::

              0
            ┌─┴─┐      up:   3→1, 4→1, 1→0, 2→0
            1   2      down: 0→1, 0→2, 1→3, 1→4
          ┌─┴─┐
          3   4
    """

    name = "binary-tree"
    summary = "Sums go up a binary tree to rank 0, and the result comes down the same way."
    source = "Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction "
    source += "and scan, Parallel Computing 35(12), 2009 (one tree, not pipelined)"
    formulas = Formulas(
        rounds=Formula("4⌊lg n⌋ − 2·[e=0], n > 1", lambda n, _: 2 * len(_levels(n))),
        sent=Formula("B, 2B from n = 3, 3B from n = 5", lambda n, _: _sent_in_tree(n)),
        busiest=Formula("2B, 4B from n = 3, 6B from n = 5", lambda n, _: 2 * _sent_in_tree(n)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * len(_levels(n)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Two for each level, one where it has a left child only; and back."""
        whole = range(chunks)
        for ranks in reversed(_levels(n)):
            up = [(rank, (rank - 1) // 2, whole) for rank in ranks]
            yield Round(up, reduce=True, phase="up")
        for ranks in _levels(n):
            yield Round([((rank - 1) // 2, rank, whole) for rank in ranks], phase="down")


def _levels(n: int) -> list[range]:
    """From the root down: the left children of a level, then its right ones."""
    found = []
    for level in range(1, floor_log(n) + 1):
        first, end = (1 << level) - 1, min((2 << level) - 1, n)
        found += [range(first, end, 2), range(first + 1, end, 2)]
    return [ranks for ranks in found if ranks]


def _sent_in_tree(n: int) -> int:
    """By the root to two children; by a rank below it to its parent and two children."""
    if n < 3:
        return n - 1
    return 2 if n < 5 else 3


class Doubling(AllReduce):
    """Ranks 1, then 2, 4, ... apart exchange all that they have, and both add.

    Four ranks, what each holds of whom::

        0   0 1   0 1 2 3  # rank 0
        1   0 1   0 1 2 3  # rank 1
        2   2 3   0 1 2 3  # rank 2
        3   2 3   0 1 2 3  # rank 3
    """

    name = "doubling"
    summary = "Ranks 1, 2, 4, ... apart exchange whole tensors and both add: fewest rounds."
    source = f"{THAKUR}, 4.5 (recursive doubling)"
    formulas = Formulas(
        rounds=Formula("lg p + 2·[e>0]", lambda n, _: floor_log(n) + 2 * odd(n)),
        sent=Formula("(lg p + [e>0])B", lambda n, _: floor_log(n) + odd(n)),
        busiest=Formula("2(lg p + [e>0])B", lambda n, _: 2 * (floor_log(n) + odd(n))),
        total=Formula("(p·lg p + 2e)B", lambda n, _: power(n) * floor_log(n) + 2 * (n - power(n))),
        serial=lambda n, _: floor_log(n) + 2 * odd(n),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """One bit of the rank's number after the other."""
        yield from shapes.fold(n, lambda _: range(chunks), reduce=True)
        for bit in masks(power(n)):
            yield shapes.flip(n, bit, lambda _: range(chunks), "doubling", reduce=True)
        yield from shapes.unfold(n, lambda _: range(chunks))


class HalvingDoubling(AllReduce):
    """The tensor is cut in p chunks; halves, then quarters, ... are exchanged, then put together.

    Four ranks; chunks 0 1 | 2 3 that each is left in charge of, and of how many ranks::

        0 1 2 3: 1   0 1: 2   0: 4   0 1: 4   0 1 2 3: 4  # rank 0
        0 1 2 3: 1   0 1: 2   1: 4   0 1: 4   0 1 2 3: 4  # rank 1
        0 1 2 3: 1   2 3: 2   2: 4   2 3: 4   0 1 2 3: 4  # rank 2
        0 1 2 3: 1   2 3: 2   3: 4   2 3: 4   0 1 2 3: 4  # rank 3
    """

    name = "halving-doubling"
    summary = "Halves, quarters, ... are exchanged and added, then the sums put together again."
    source = "R. Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004; "
    source += f"{THAKUR}, 4.5"
    formulas = Formulas(
        rounds=Formula("2 lg p + 2·[e>0]", lambda n, _: 2 * (floor_log(n) + odd(n))),
        sent=Formula("(2(p−1)/p + [e>0])B", lambda n, _: 2 * others(power(n)) + odd(n)),
        busiest=Formula(
            "(4(p−1)/p + 2·[e>0])B", lambda n, _: 2 * (2 * others(power(n)) + Fraction(odd(n)))
        ),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
        serial=lambda n, _: 2 * others(power(n)) + 2 * odd(n),
    )

    def chunks(self, n: int) -> int:
        """The largest power of 2 that is not above n."""
        return power(n)

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The highest bit of the rank's number first, and back."""
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
