"""What an op asks of an algorithm: who has which chunks before, and who has to have them after.

It says the same as the ops' own ``pieces`` and ``result`` (a test compares them), in chunks:

- of ``all_reduce``, ``reduce`` and ``broadcast`` the one tensor is cut in C chunks;
- of ``all_gather`` and ``gather`` chunk r is rank r's tensor;
- of ``reduce_scatter`` chunk r is everybody's part for rank r, of ``scatter`` the root's;
- of ``all_to_all`` chunk i·n + j is rank i's part for rank j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["all", "root", "own", "from", "to"]
"""Ranks: all of them; the root; the one with the chunk's number; i, or j, of all_to_all."""


@dataclass(frozen=True, slots=True)
class Task:
    """Chunks of one op, wherever there are n ranks.

    Attributes:
        given: who has a chunk before.
        due: who has to have it after.
        whole: the chunks are cut from one tensor; else each is a piece of its own.
        reduced: what is due holds everybody's contribution; else the giver's alone.
        moved: who has sent a chunk does not need it any more.
        noun: what a chunk is, in a word.
    """

    given: Where
    due: Where
    whole: bool = False
    reduced: bool = False
    moved: bool = False
    noun: str = "chunk"

    @property
    def rooted(self) -> bool:
        """Whether a root has chunks of its own, which turn around with it."""
        return not self.whole and "root" in (self.given, self.due)

    def pieces(self, n: int) -> int:
        """How many chunks there are on n ranks where nobody cuts: a whole tensor is one."""
        if self.whole:
            return 1
        return n * n if self.given == "from" else n


TASKS = {
    "all_reduce": Task("all", "all", whole=True, reduced=True),
    "reduce": Task("all", "root", whole=True, reduced=True),
    "broadcast": Task("root", "all", whole=True),
    "reduce_scatter": Task("all", "own", reduced=True, noun="part"),
    "all_gather": Task("own", "all", noun="tensor"),
    "scatter": Task("root", "own", moved=True, noun="part"),
    "gather": Task("own", "root", moved=True, noun="tensor"),
    "all_to_all": Task("from", "to", moved=True, noun="part"),
}
"""By torch's name of the op: data for every algorithm of it."""


def holds(where: Where, rank: int, n: int, root: int, chunks: int) -> range:
    """The chunks that this says to be on a rank."""
    if where == "all" or (where == "root" and rank == root):
        return range(chunks)
    if where == "own":
        return range(rank, rank + 1)
    if where == "from":
        return range(rank * n, (rank + 1) * n)
    if where == "to":
        return range(rank, n * n, n)
    return range(0)
