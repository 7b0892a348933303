"""The algorithm contract: a schedule, its cost formulas and their source.

An algorithm is data: ``rounds`` yields the rounds for n ranks and a number of chunks. Three engines
use only these: one runs them on real ranks, one plays them on paper, one counts them. None of them
knows an op or an algorithm by name. For many ranks the formulas are evaluated instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

Number = int | Fraction
MOST_DEFAULT = 16  # chunks of a pipeline: more cost α, fewer leave ranks idle at both ends

THAKUR = "Thakur, Rabenseifner, Gropp 2005"
"""Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1)."""
CHAN = "Chan, Heimlich, Purkayastha, van de Geijn 2007"
"""Collective communication: theory, practice, and experience, CCPE 19(13)."""
PATARASUK = "Patarasuk, Yuan 2009"
"""Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2)."""
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
        given: Ranks that hold a chunk before.
        due: Ranks that must hold it after.
        whole: True if the chunks are cut from one tensor; otherwise each is a separate piece.
        reduced: True if the result holds every rank's contribution, not just the original owner's.
        moved: True if a rank no longer needs a chunk that it has sent.
    """

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
        content: Version of the chunks that is sent: the sender's current one, its initial one, or
            the one in the last message that it received.
        phase: Phase of the algorithm in a word or two; empty if it has only one.
    """

    moves: Sequence[Move]
    reduce: bool = False
    content: Content = "held"
    phase: str = ""


# -------------------------------------------------------------------------------------- algorithms


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula in n and the number of chunks.

    Attributes:
        text: Formula as text. n: ranks, C: chunks, lg: logarithm to base 2 rounded up, p: largest
            power of 2 that is at most n, e = n − p, S: the payload (``Op.traffic``).
        value: Function that returns a number of rounds, or bytes as a multiple of S; exact if all
            chunks are equal.
    """

    text: str
    value: Callable[[int, int], Number]


@dataclass(frozen=True, slots=True)
class Formulas:
    """Cost of an algorithm.

    Attributes:
        rounds: Number of rounds. Each costs α.
        sent: Bytes sent by the rank that sends most.
        busiest: Bytes sent and received by the busiest rank.
        total: Bytes sent by all ranks together.
        serial: Largest message of each round, added up, as a multiple of S. It costs β per byte.
    """

    rounds: Formula
    sent: Formula
    busiest: Formula
    total: Formula
    serial: Callable[[int, int], Number]


class Algorithm(ABC):
    """One way to do one op.

    Class attributes:
        op: torch's name of the op.
        goal: Goal of the op.
        name: Name, such as ``ring`` or ``halving-doubling``.
        summary: One sentence on how it works.
        source: Paper or textbook, with the section.
        formulas: Cost of the algorithm.
        chunked: True if the user can choose the number of chunks (``--chunks``).
    """

    op: ClassVar[str]
    goal: ClassVar[Goal]
    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    formulas: ClassVar[Formulas]
    chunked: ClassVar[bool] = False

    def chunks(self, n: int) -> int:
        """Return the number of chunks on n ranks: the op's pieces, or those of a pipeline."""
        return min(n, MOST_DEFAULT) if self.chunked else self.goal.pieces(n)

    @abstractmethod
    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """Yield the rounds for n ranks, at least 1; the root is rank 0.

        Args:
            n: Number of ranks.
            chunks: Number of chunks: the result of ``chunks``, or the user's if ``chunked``.
        """


# ---------------------------------------------------------------------------- terms of the formulas


def log(n: int) -> int:
    """Return the logarithm to base 2, rounded up: the rounds for a message to reach n ranks."""
    return (n - 1).bit_length()


def power(n: int) -> int:
    """Return the largest power of 2 that is at most n."""
    return 1 << (n.bit_length() - 1)


def floor_log(n: int) -> int:
    """Return the logarithm to base 2, rounded down."""
    return n.bit_length() - 1


def odd(n: int) -> int:
    """Return 0 if n is a power of 2, else 1."""
    return int(power(n) != n)


def several(n: int) -> int:
    """Return 1 if there is more than one rank, else 0."""
    return int(n > 1)


def others(n: int) -> Fraction:
    """Return the share of all parts except a rank's own: (n − 1) / n."""
    return Fraction(n - 1, n)


def masks(n: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... below n."""
    return tuple(1 << bit for bit in range(log(n)))


def with_bit(n: int, bit: int) -> int:
    """Return the count of numbers below n that have this bit set."""
    whole, rest = divmod(n, 2 * bit)
    return whole * bit + max(0, rest - bit)


def bits_set(n: int) -> int:
    """Return the total of set bits in all numbers below n: the sends of bitwise routing."""
    return sum(with_bit(n, bit) for bit in masks(n))


def stood_for(n: int) -> int:
    """Return the ranks beyond p that rank 0's blocks represent, over all sizes from 1 to p / 2."""
    core = power(n)
    return sum(min(bit, n - core) for bit in masks(core))


RING = Formulas(
    rounds=Formula("n−1", lambda n, _: n - 1),
    sent=Formula("(n−1)/n·S", lambda n, _: others(n)),
    busiest=Formula("2(n−1)/n·S", lambda n, _: 2 * others(n)),
    total=Formula("(n−1)S", lambda n, _: n - 1),
    serial=lambda n, _: others(n),
)
"""Costs if every rank sends and receives one part in each round."""
BITS = Formula(
    "bits set in 1..n−1, /n·S; (lg n)/2·S where e=0", lambda n, _: Fraction(bits_set(n), n)
)
"""Bytes if each part is sent once per set bit of its distance."""
PIPELINE = Formulas(
    rounds=Formula("n−1 + C−1, n > 1", lambda n, c: several(n) * (n - 1 + c - 1)),
    sent=Formula("S", lambda n, _: several(n)),
    busiest=Formula("S, 2S from n = 3", lambda n, _: min(n - 1, 2)),
    total=Formula("(n−1)S", lambda n, _: n - 1),
    serial=lambda n, c: Fraction(several(n) * (n - 1 + c - 1), c),
)
"""Costs if chunks follow each other along a chain of ranks."""
