"""The algorithm contract: a schedule, its cost formulas and their source.

An algorithm is data: ``rounds`` yields the rounds for n ranks and a number of chunks. Three engines
use only these: one runs them on real ranks, one plays them on paper, one counts them. None of them
knows an op or an algorithm by name. For many ranks the formulas are evaluated instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

THAKUR = "Thakur, Rabenseifner, Gropp 2005"
"""Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1)."""
CHAN = "Chan, Heimlich, Purkayastha, van de Geijn 2007"
"""Collective communication: theory, practice, and experience, CCPE 19(13)."""
PATARASUK = "Patarasuk, Yuan 2009"
"""Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2)."""
RABENSEIFNER = "R. Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004"
SANDERS = (
    "Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction "
    "and scan, Parallel Computing 35(12), 2009"
)
BRUCK = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997"
"""Efficient algorithms for all-to-all communications in multiport systems, IEEE TPDS 8(11)."""
PJESIVAC = (
    "Pješivac-Grbović et al., Performance analysis of MPI collective operations, "
    "Cluster Computing 10(2), 2007"
)

# ------------------------------------------------------------------------------------ goal of an op

Where = Literal["all", "root", "own", "from", "to"]
"""Ranks that hold a chunk: all; the root; the rank with its number; i, or j, of chunk i·n + j."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Chunks that each rank holds before an op, and must hold after it.

    Equivalent to the op's ``pieces`` and ``result``, in chunks (a test compares them).

    Attributes:
        op: torch's name of the op.
        given: Ranks that hold a chunk before.
        due: Ranks that must hold it after.
        whole: True if the chunks are cut from one tensor; otherwise each is a separate piece.
        reduced: True if the result holds every rank's contribution, not just the original owner's.
        moved: True if a rank no longer needs a chunk that it has sent.
    """

    op: str
    given: Where
    due: Where
    whole: bool = False
    reduced: bool = False
    moved: bool = False

    @property
    def rooted(self) -> bool:
        """True if chunks belong to ranks and there is a root, so chunk numbers rotate with it."""
        return not self.whole and "root" in (self.given, self.due)

    def pieces(self, n: int) -> int:
        """Return the number of chunks on n ranks if nothing is cut; a whole tensor is one."""
        if self.whole:
            return 1
        return n * n if self.given == "from" else n


# ------------------------------------------------------------------------------------------ rounds

Content = Literal["held", "original", "last"]
"""Version of a chunk that is sent: the sender's current one, its initial one, or the one in the
last message that it received."""
Move = tuple[int, int, Sequence[int]]
"""Sender, receiver and chunks of a message; the chunks in message order."""


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are sent at the same time.

    Attributes:
        moves: Messages. No two have the same sender or the same receiver.
        reduce: True if the receiver combines a chunk with what it holds instead of replacing that.
        content: Version of the chunks that is sent.
        phase: Phase of the algorithm in a word or two; empty if it has only one.
    """

    moves: Sequence[Move]
    reduce: bool = False
    content: Content = "held"
    phase: str = ""


# ---------------------------------------------------------------------------------------- formulas


class Letters:
    """Values of the letters in formulas, for two or more ranks; see ``LETTERS``.

    Args:
        n: Number of ranks.
        chunks: C, the number of chunks.
    """

    def __init__(self, n: int, chunks: int) -> None:
        p = power(n)
        self.n = Fraction(n)
        self.C = Fraction(chunks)
        self.lg_n = len(masks(n))
        self.lg_p = len(masks(p))
        self.p = Fraction(p)
        self.e = Fraction(n - p)
        self.b = sum(n // (2 * bit) * bit + max(0, n % (2 * bit) - bit) for bit in masks(n))
        self.f = sum(min(bit, n - p) for bit in masks(p))
        self.m = Fraction(masks(n)[-1])
        full = (n + 1).bit_length() - 1  # levels of the tree that are full
        self.t = full + (2 * (n + 1) // 3).bit_length() - 2


LETTERS = (
    "n: ranks; C: chunks; lg: logarithm to base 2, rounded up; p: largest power of 2 that is not "
    "above n; e = n − p; [e>0]: 1 if so, else 0; b: bits set in 1 to n−1, added up (n(lg n)/2 if "
    "e = 0); f: min(2^k, e) for k from 0, 2^k < p, added up; m: largest power of 2 below n; "
    "t: rounds in which sums go up a binary tree, log2(n+1) + log2(2(n+1)/3) − 1, with both "
    "logarithms rounded down."
)
"""Letters in the formulas, except S."""


class Formula(NamedTuple):
    """A formula as text, and as a function that returns its value with S = 1."""

    text: str
    value: Callable[[Letters], Fraction | int]


class Formulas(NamedTuple):
    """Cost of an algorithm on two or more ranks.

    Bytes are multiples of S, the payload (``Op.traffic``), and exact if all chunks are equal.

    Attributes:
        rounds: Number of rounds. Each costs α.
        sent: Bytes sent by the rank that sends most.
        busiest: Bytes sent and received by the busiest rank.
        total: Bytes sent by all ranks together.
        serial: Largest message of each round, added up. It costs β per byte.
    """

    rounds: Formula
    sent: Formula
    busiest: Formula
    total: Formula
    serial: Formula

    def values(self, n: int, chunks: int) -> list[Fraction]:
        """Return the value of each formula on n ranks with S = 1. One rank sends nothing."""
        if n == 1:
            return [Fraction(0)] * len(self)
        letters = Letters(n, chunks)
        return [Fraction(formula.value(letters)) for formula in self]


def power(n: int) -> int:
    """Return the largest power of 2 that is at most n."""
    return 1 << (n.bit_length() - 1)


def masks(n: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... below n."""
    return tuple(1 << bit for bit in range((n - 1).bit_length()))


# -------------------------------------------------------------------------------------- algorithms


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do one op.

    Attributes:
        goal: Goal of the op.
        name: Name, such as ``ring`` or ``halving-doubling``.
        summary: One sentence on how it works.
        source: Paper or textbook, with the section.
        formulas: Cost of the algorithm.
        rounds: Function that yields the rounds for n ranks, at least 1, and a number of chunks;
            the root is rank 0.
        cut: Function that returns the number of chunks on n ranks; None for the op's pieces.
    """

    goal: Goal
    name: str
    summary: str
    source: str
    formulas: Formulas
    rounds: Callable[[int, int], Iterable[Round]]
    cut: Callable[[int], int] | None = None

    @property
    def op(self) -> str:
        """Name of the op in torch."""
        return self.goal.op

    def chunks(self, n: int) -> int:
        """Return the number of chunks on n ranks."""
        return self.goal.pieces(n) if self.cut is None else self.cut(n)


REGISTERED: list[Algorithm] = []
"""Algorithms in the order of their definition."""


def algorithm(
    goal: Goal,
    name: str,
    source: str,
    formulas: Formulas,
    *,
    cut: Callable[[int], int] | None = None,
) -> Callable[[Callable[[int, int], Iterable[Round]]], Algorithm]:
    """Register a function as the rounds of an algorithm, and its docstring's first line as summary.

    Args:
        goal: Goal of the op.
        name: Name of the algorithm.
        source: Paper or textbook, with the section.
        formulas: Cost of the algorithm.
        cut: Function that returns the number of chunks on n ranks; None for the op's pieces.
    """

    def register(rounds: Callable[[int, int], Iterable[Round]]) -> Algorithm:
        summary = (rounds.__doc__ or "").partition("\n")[0]
        made = Algorithm(goal, name, summary, source, formulas, rounds, cut)
        if any((known.op, known.name) == (made.op, name) for known in REGISTERED):
            raise ValueError(f"{made.op} has two algorithms {name}")
        REGISTERED.append(made)
        return made

    return register
