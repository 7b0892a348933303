"""The algorithm contract: a schedule, the formulas that it is known for, and where they are from.

An algorithm is data. For n ranks and a payload in so many chunks it gives rounds (``rounds``).
Three engines read these and nothing else: one runs them on real ranks, one counts them, one draws
them. None of them knows an algorithm by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from distdemo.trace.algorithms.schedule import Round, with_bit
from distdemo.trace.algorithms.task import TASKS

Number = int | Fraction
THAKUR = "Thakur, Rabenseifner, Gropp 2005"
"""Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1)."""
CHAN = "Chan, Heimlich, Purkayastha, van de Geijn 2007"
"""Collective communication: theory, practice, and experience, CCPE 19(13)."""
PATARASUK = "Patarasuk, Yuan 2009"
"""Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2)."""
BRUCK = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997"
"""Efficient algorithms for all-to-all communications in multiport systems, IEEE TPDS 8(11)."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A number by n and the number of chunks.

    Attributes:
        words: as people write it. n ranks, C chunks, lg the logarithm to base 2 rounded up, p the
            largest power of 2 that is not above n, e = n − p, B what ``traffic`` counts.
        value: of bytes, as a multiple of B, exact where all chunks are equal.
    """

    words: str
    value: Callable[[int, int], Number]


@dataclass(frozen=True, slots=True)
class Printed:
    """A formula for the bytes in all that is in print as well, and does not count the same.

    Attributes:
        formula: as a multiple of B.
        why: where it differs, in a sentence.
    """

    formula: Formula
    why: str


@dataclass(frozen=True, slots=True)
class Formulas:
    """What the algorithm is known to cost.

    Attributes:
        rounds: how many; α is paid in each.
        sent: bytes that the rank which sends most sends.
        busiest: bytes through the busiest rank, those that it sends and those that it receives.
        total: bytes that all ranks send together.
        printed: other formulas for the total that people will find.
    """

    rounds: Formula
    sent: Formula
    busiest: Formula
    total: Formula
    printed: tuple[Printed, ...] = ()


class Algorithm(ABC):
    """One way to do one op.

    Class attributes:
        op: torch's name of what it does.
        name: ``ring``, ``halving-doubling``, ...
        summary: how, in a sentence.
        source: the paper or textbook, and the place in it.
        formulas: what it costs.
        chunked: the payload is cut in as many chunks as one likes (``--chunks``).
    """

    op: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    formulas: ClassVar[Formulas]
    chunked: ClassVar[bool] = False

    def chunks(self, n: int) -> int:
        """In how many chunks it cuts a tensor on n ranks; of ops with a part a rank: how many."""
        return TASKS[self.op].pieces(n)

    @abstractmethod
    def rounds(self, n: int, chunks: int) -> Iterator[Round]:
        """The schedule for n ranks, 1 or more, one round after the other; root is rank 0.

        Args:
            n: ranks.
            chunks: what ``chunks`` says, or the user where it is ``chunked``.
        """


# ---------------------------------------------------------------------------- for the formulas


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
    """1 where n is no power of 2, else 0."""
    return int(power(n) != n)


def several(n: int) -> int:
    """1 where there is anybody to send to, else 0."""
    return int(n > 1)


def masks(n: int) -> tuple[int, ...]:
    """1, 2, 4, ... below n."""
    return tuple(1 << bit for bit in range(log(n)))


def bits_set(n: int) -> int:
    """How many bits are set in all the numbers below n: how often what goes bit by bit is sent."""
    return sum(with_bit(n, bit) for bit in masks(n))
