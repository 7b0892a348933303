"""all_reduce in a binary tree: sums go up, the result goes down."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Algorithm, Formula, Formulas, floor_log
from distdemo.trace.algorithms.schedule import Child, Parent, Round, Sends, everything


class BinaryTreeAllReduce(Algorithm):
    """Rank i's children are 2i + 1 and 2i + 2; level by level, the left child before the right one.

    Five ranks::

              0
            ┌─┴─┐      up:   3→1, 4→1, 1→0, 2→0
            1   2      down: 0→1, 0→2, 1→3, 1→4
          ┌─┴─┐
          3   4
    """

    op = "all_reduce"
    name = "binary-tree"
    summary = "Sums go up a binary tree to rank 0, and the result comes down the same way."
    source = "Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction "
    source += "and scan, Parallel Computing 35(12), 2009 (one tree, not pipelined)"
    formulas = Formulas(
        rounds=Formula("4⌊lg n⌋ − 2·[e=0], n > 1", lambda n, _: 2 * len(_levels(n))),
        sent=Formula("B, 2B from n = 3, 3B from n = 5", lambda n, _: _sent(n)),
        busiest=Formula("2B, 4B from n = 3, 6B from n = 5", lambda n, _: 2 * _sent(n)),
        total=Formula("2(n−1)B", lambda n, _: 2 * (n - 1)),
    )

    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Two for each level, one where it has a left child only; and back."""
        whole = everything(chunks)
        for _, ranks in reversed(_levels(n)):
            yield Round((Sends(ranks, Parent(), whole, reduce=True),), "up")
        for side, ranks in _levels(n):
            parents = range(ranks[0] // 2 - (side == 2), ranks[-1] // 2 + (side == 1))
            yield Round((Sends(parents, Child(side), whole),), "down")


def _levels(n: int) -> list[tuple[int, range]]:
    """From the root down: the left children of a level, then its right ones."""
    found = []
    for level in range(1, floor_log(n) + 1):
        first, end = (1 << level) - 1, min((2 << level) - 1, n)
        found += [(side, range(first + side - 1, end, 2)) for side in (1, 2)]
    return [(side, ranks) for side, ranks in found if ranks]


def _sent(n: int) -> int:
    """By the root to two children; by a rank below it to its parent and two children."""
    if n < 3:
        return n - 1
    return 2 if n < 5 else 3
