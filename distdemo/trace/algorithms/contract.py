"""The algorithm contract: a schedule, what it is known to cost, and who says so.

An algorithm is data. For n ranks and a number of chunks it gives rounds (``rounds``).
Three engines read these and nothing else: one runs them on real ranks, one plays them on paper, one
counts them. None of them knows an op or an algorithm by name. For many ranks the formulas are
evaluated instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from distdemo.trace.schedule import Goal, Round

Number = int | Fraction
MOST_USUAL = 16  # chunks of a pipeline: more cost α, fewer leave ranks idle at both ends

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


@dataclass(frozen=True, slots=True)
class Formula:
    """A number by n and the number of chunks.

    Attributes:
        words: as people write it. n ranks, C chunks, lg the logarithm to base 2 rounded up, p the
            largest power of 2 that is not above n, e = n − p, B the payload (``Op.traffic``).
        value: a number of rounds, or bytes as a multiple of B, exact where all chunks are equal.
    """

    words: str
    value: Callable[[int, int], Number]


@dataclass(frozen=True, slots=True)
class Formulas:
    """What the algorithm is known to cost.

    Attributes:
        rounds: how many; α is paid in each.
        sent: bytes that the rank that sends most sends.
        busiest: bytes through the busiest rank, sent and received together.
        total: bytes that all ranks send together.
        serial: Largest message of each round, added up, as a multiple of B; β is paid for it.
    """

    rounds: Formula
    sent: Formula
    busiest: Formula
    total: Formula
    serial: Callable[[int, int], Number]


class Algorithm(ABC):
    """One way to do one op.

    Class attributes:
        op: torch's name of what it does.
        goal: what the op asks for.
        name: ``ring``, ``halving-doubling``, ...
        summary: how, in a sentence.
        source: the paper or textbook, and the place in it.
        formulas: what it costs.
        chunked: the payload is cut in as many chunks as one likes (``--chunks``).
    """

    op: ClassVar[str]
    goal: ClassVar[Goal]
    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    formulas: ClassVar[Formulas]
    chunked: ClassVar[bool] = False

    def chunks(self, n: int) -> int:
        """Number of chunks on n ranks: the op's pieces as they are, or those of a pipeline."""
        return min(n, MOST_USUAL) if self.chunked else self.goal.pieces(n)

    @abstractmethod
    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The schedule for n ranks, 1 or more, one round after the other; the root is rank 0.

        Args:
            n: ranks.
            chunks: what ``chunks`` says, or the user where it is ``chunked``.
        """


# --------------------------------------------------------------------------------- for the formulas


def log(n: int) -> int:
    """The logarithm to base 2, rounded up: rounds in which a message reaches n ranks."""
    return (n - 1).bit_length()


def power(n: int) -> int:
    """The largest power of 2 that is not above n."""
    return 1 << (n.bit_length() - 1)


def floor_log(n: int) -> int:
    """The logarithm to base 2, rounded down."""
    return n.bit_length() - 1


def odd(n: int) -> int:
    """1 where n is not a power of 2, else 0."""
    return int(power(n) != n)


def several(n: int) -> int:
    """1 where there is anybody to send to, else 0."""
    return int(n > 1)


def others(n: int) -> Fraction:
    """All parts but a rank's own: (n − 1) / n."""
    return Fraction(n - 1, n)


def masks(n: int) -> tuple[int, ...]:
    """1, 2, 4, ... below n."""
    return tuple(1 << bit for bit in range(log(n)))


def with_bit(n: int, bit: int) -> int:
    """How many of the numbers below n have this bit set."""
    whole, rest = divmod(n, 2 * bit)
    return whole * bit + max(0, rest - bit)


def bits_set(n: int) -> int:
    """How many bits are set in all the numbers below n: how often what goes bit by bit is sent."""
    return sum(with_bit(n, bit) for bit in masks(n))


def stood_for(n: int) -> int:
    """Ranks beyond p that rank 0's block stands for, over all blocks from 1 rank to p / 2."""
    core = power(n)
    return sum(min(bit, n - core) for bit in masks(core))


RING = Formulas(
    rounds=Formula("n−1", lambda n, _: n - 1),
    sent=Formula("(n−1)/n·B", lambda n, _: others(n)),
    busiest=Formula("2(n−1)/n·B", lambda n, _: 2 * others(n)),
    total=Formula("(n−1)B", lambda n, _: n - 1),
    serial=lambda n, _: others(n),
)
"""Every rank sends a part to another one in each round, and gets one."""
BITS = Formula(
    "bits set in 1..n−1, /n·B; (lg n)/2·B where e=0", lambda n, _: Fraction(bits_set(n), n)
)
"""What goes bit by bit of a rank's number travels once for each bit that is set."""
PIPELINE = Formulas(
    rounds=Formula("n−1 + C−1, n > 1", lambda n, c: several(n) * (n - 1 + c - 1)),
    sent=Formula("B", lambda n, _: several(n)),
    busiest=Formula("B, 2B from n = 3", lambda n, _: min(n - 1, 2)),
    total=Formula("(n−1)B", lambda n, _: n - 1),
    serial=lambda n, c: Fraction(several(n) * (n - 1 + c - 1), c),
)
"""Chunks follow each other along a chain of ranks."""
