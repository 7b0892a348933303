"""Programs with a mistake, and the same without it: what every rank runs with its group ready.

A faulty program says what is to be found in it. The lines at fault end in ``# wrong``::

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
        kind: of the finding.
        ranks: that are to be named; empty: whichever.
        program: what every rank runs.
        size: how many ranks.
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
    """Register a program without one, for four ranks."""
    RIGHT.append(program)
    return program


LOOKS = mmap.mmap(-1, 8)
"""How often the launcher has looked, of the world that runs; its ranks share this memory."""


def looked() -> int:
    """How often it has."""
    return int.from_bytes(LOOKS[:8], "little")


def count_look() -> None:
    """In the launcher: it has once more."""
    LOOKS[:8] = (looked() + 1).to_bytes(8, "little")


def compute() -> None:
    """In a rank: come so late that the launcher has looked a few times and heard nothing new."""
    first = looked()
    assert wait_until(lambda: looked() > first + 10)
