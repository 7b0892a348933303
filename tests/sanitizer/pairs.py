"""Programs with a mistake and their fixed versions; every rank runs them with its group ready.

A faulty program declares its finding. The lines at fault end in ``# wrong``::

    @faulty("reduce_op", ranks=(2,))
    def one_rank_multiplies(rank: int, size: int) -> None:
        op = dist.ReduceOp.PRODUCT if rank == 2 else dist.ReduceOp.SUM
        dist.all_reduce(torch.ones(4), op)  # wrong

    @right
    def all_add(rank: int, size: int) -> None:
        ...
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

from helpers import wait_until

Program = Callable[[int, int], None]


@dataclass(frozen=True)
class Faulty:
    """A program with a mistake.

    Attributes:
        kind: Kind of the finding.
        ranks: Ranks that must be named; empty for any.
        program: Function that every rank runs.
        size: Number of ranks.
    """

    kind: str
    ranks: tuple[int, ...]
    program: Program
    size: int = 4


FAULTY: dict[str, Faulty] = {}
RIGHT: list[Program] = []


def faulty(kind: str, ranks: tuple[int, ...] = (), size: int = 4) -> Callable[[Program], Program]:
    """Register a program with a mistake."""

    def register(program: Program) -> Program:
        FAULTY[program.__name__] = Faulty(kind, ranks, program, size)
        return program

    return register


def right(program: Program) -> Program:
    """Register a correct program for four ranks."""
    RIGHT.append(program)
    return program


POLLS = mmap.mmap(-1, 8)
"""Number of polls by the launcher, in memory shared with the ranks of the running world."""


def poll_count() -> int:
    """Return the number of polls."""
    return int.from_bytes(POLLS[:8], "little")


def count_poll() -> None:
    """Count a poll, in the launcher."""
    POLLS[:8] = (poll_count() + 1).to_bytes(8, "little")


def compute() -> None:
    """Delay a rank until the launcher has polled several times without a new note."""
    first = poll_count()
    assert wait_until(lambda: poll_count() > first + 10)
