"""What schedules are made of: rounds, in which ranks send chunks to each other.

A round is said in few words whatever the number of ranks: "every rank sends the chunk of its own
number to its right neighbour" is one ``Sends``. So rounds of 100,000 ranks can be counted without
writing down a transfer for each, and small ones be written out (``transfers``).

In a round a rank sends at most one message and receives at most one: that is what a link that goes
both ways can do at a time, and why a round costs α once (R. Thakur, R. Rabenseifner, W. Gropp,
Optimization of Collective Communication Operations in MPICH, IJHPCA 19, 2005, section 3). What is
sent is what the sender held before the round.

Ranks and chunks here are numbered as if rank 0 were the root; ``Plan`` turns them around for
another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many elements each chunk has: ``each``, and the first ``larger`` of them one more.

    Attributes:
        chunks: how many there are.
        each: elements of the smaller ones.
        larger: how many have one more.
    """

    chunks: int
    each: int
    larger: int = 0

    @classmethod
    def cut(cls, elements: int, chunks: int) -> Sizes:
        """So many elements in chunks that are as equal as can be, as numpy.array_split cuts."""
        return cls(chunks, *divmod(elements, chunks))

    def before(self, chunk: int) -> int:
        """Elements of all chunks before this one; beyond the last, of further turns around."""
        turns, place = divmod(chunk, self.chunks)
        whole = self.chunks * self.each + self.larger
        return turns * whole + place * self.each + min(place, self.larger)

    def within(self, first: int, end: int) -> int:
        """Elements of the chunks from ``first`` up to, without, ``end``; may go around."""
        return self.before(end) - self.before(first)

    def most(self, width: int) -> int:
        """Of so many chunks in a row, wherever they begin."""
        return width * self.each + min(width, self.larger)


# ------------------------------------------------------------------------------------ partners


class To(ABC):
    """Whom a rank sends to."""

    @abstractmethod
    def of(self, rank: int, n: int) -> int:
        """The receiver."""


@dataclass(frozen=True, slots=True)
class Shift(To):
    """The rank that is so many places further, around the circle."""

    by: int

    def of(self, rank: int, n: int) -> int:
        """Rank + by, modulo n."""
        return (rank + self.by) % n


@dataclass(frozen=True, slots=True)
class Flip(To):
    """The rank whose number differs in this bit."""

    bit: int

    def of(self, rank: int, n: int) -> int:
        """Rank xor bit."""
        return rank ^ self.bit


@dataclass(frozen=True, slots=True)
class Parent(To):
    """In a binary tree, numbered level by level."""

    def of(self, rank: int, n: int) -> int:
        """(Rank − 1) / 2."""
        return (rank - 1) // 2


@dataclass(frozen=True, slots=True)
class Child(To):
    """In the same tree: 1 is the left one, 2 the right one."""

    side: int

    def of(self, rank: int, n: int) -> int:
        """2 · rank + side."""
        return 2 * rank + self.side


# -------------------------------------------------------------------------------------- chunks


class Chunks(ABC):
    """Which chunks a message carries."""

    @abstractmethod
    def of(self, src: int, dst: int, n: int, chunks: int) -> tuple[int, ...]:
        """Their numbers, in the order in which they lie in the message."""

    @abstractmethod
    def elements(self, src: int, dst: int, n: int, sizes: Sizes) -> int:
        """Of all of them together, without writing them down."""


@dataclass(frozen=True, slots=True)
class Window(Chunks):
    """So many in a row, from one on that depends on the sender; after the last comes the first.

    Attributes:
        first: of rank 0.
        width: how many.
        turn: how much further the first is with each rank: 1, 0 or −1.
    """

    first: int
    width: int = 1
    turn: int = 1

    def of(self, src: int, dst: int, n: int, chunks: int) -> tuple[int, ...]:
        """(First + turn · src + 0, 1, ...) modulo the number of chunks."""
        start = self.first + self.turn * src
        return tuple(place % chunks for place in range(start, start + self.width))

    def elements(self, src: int, dst: int, n: int, sizes: Sizes) -> int:
        """By the sizes before its ends."""
        start = (self.first + self.turn * src) % sizes.chunks
        return sizes.within(start, start + self.width)


def everything(chunks: int) -> Window:
    """All of so many chunks."""
    return Window(0, chunks, 0)


@dataclass(frozen=True, slots=True)
class Block(Chunks):
    """The chunks of a block of ranks, aligned to its width: of the sender's or the receiver's.

    Where n is no power of 2, rank i < n − p, p the largest one, stands for rank p + i, too, and so
    for its chunk.

    Attributes:
        width: ranks, a power of 2.
        receivers: the receiver's block, not the sender's.
        core: p; 0: nobody stands for anybody, and the last block ends with the last chunk.
    """

    width: int
    receivers: bool
    core: int = 0

    def of(self, src: int, dst: int, n: int, chunks: int) -> tuple[int, ...]:
        """Those of the ranks, then those of the ranks that they stand for."""
        return tuple(chunk for window in self._windows(src, dst, chunks) for chunk in window)

    def elements(self, src: int, dst: int, n: int, sizes: Sizes) -> int:
        """By the sizes before its ends."""
        windows = self._windows(src, dst, sizes.chunks)
        return sum(sizes.within(each.start, each.stop) for each in windows)

    def _windows(self, src: int, dst: int, chunks: int) -> Iterator[range]:
        first = (dst if self.receivers else src) // self.width * self.width
        yield range(first, min(first + self.width, chunks))
        if self.core and first + self.core < chunks:
            yield range(first + self.core, min(first + self.width + self.core, chunks))


@dataclass(frozen=True, slots=True)
class Mine(Chunks):
    """Of all_to_all: what the sender holds for the receiver. Chunk i · n + j is i's part for j."""

    def of(self, src: int, dst: int, n: int, chunks: int) -> tuple[int, ...]:
        """One."""
        return (src * n + dst,)

    def elements(self, src: int, dst: int, n: int, sizes: Sizes) -> int:
        """All parts are equal."""
        return sizes.each


@dataclass(frozen=True, slots=True)
class WithBit(Chunks):
    """Of all_to_all: all parts here whose whole way, in ranks, has this bit set.

    A part for the rank d places further goes the way of d's bits one after the other, the lowest
    first; by now it has gone those below this one.
    """

    bit: int

    def of(self, src: int, dst: int, n: int, chunks: int) -> tuple[int, ...]:
        """By their ways, the shortest first."""
        ways = (way for way in range(n) if way & self.bit)
        begun = ((way, (src - way % self.bit) % n) for way in ways)
        return tuple(origin * n + (origin + way) % n for way, origin in begun)

    def elements(self, src: int, dst: int, n: int, sizes: Sizes) -> int:
        """All parts are equal."""
        return with_bit(n, self.bit) * sizes.each


def with_bit(n: int, bit: int) -> int:
    """How many of the numbers below n have this bit set."""
    whole, rest = divmod(n, 2 * bit)
    return whole * bit + max(0, rest - bit)


# -------------------------------------------------------------------------------------- rounds


@dataclass(frozen=True, slots=True)
class Sends:
    """A part of a round: each of some ranks sends one message.

    Attributes:
        ranks: who sends.
        to: whom to.
        chunks: what.
        reduce: the receiver combines it with what it holds; else it takes its place.
        original: what the sender began with is sent, not what it holds by now.
    """

    ranks: range
    to: To
    chunks: Chunks
    reduce: bool = False
    original: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What happens at the same time.

    Attributes:
        sends: no two of them have a sender, or a receiver, in common.
        phase: of the algorithm, in a word or two; empty: it has only one.
    """

    sends: tuple[Sends, ...]
    phase: str = ""
