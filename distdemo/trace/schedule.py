"""Schedules: rounds in which ranks send chunks to each other.

In a round a rank sends at most one message and receives at most one: that is what a link that works
both ways can do at a time, and why a round costs α once (R. Thakur, R. Rabenseifner, W. Gropp,
Optimization of Collective Communication Operations in MPICH, IJHPCA 19, 2005, section 3).

Ranks and chunks are numbered here as if rank 0 were the root; ``Schedule`` turns them for
another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distdemo.errors import DistdemoError
from distdemo.trace.records import Content, PlayedRound, Transfer

if TYPE_CHECKING:
    from distdemo.trace.algorithms.contract import Algorithm


class ScheduleError(DistdemoError):
    """A schedule asks for what no link can do; a fault of the algorithm's file."""


# --------------------------------------------------------------------------------- what an op asks

Where = Literal["all", "root", "own", "from", "to"]
"""Ranks: all of them; the root; the one with the chunk's number; i, or j, of chunk i·n + j."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What an op asks of an algorithm: who has which chunks before, and who must have them after.

    It says the same as the op's own ``pieces`` and ``result``, in chunks (a test compares them).

    Attributes:
        given: who has a chunk before.
        due: who must have it after.
        whole: the chunks are cut from one tensor; else each is a piece of its own.
        reduced: what is due holds everybody's contribution; else the giver's alone.
        moved: a rank that has sent a chunk does not need it any more.
    """

    given: Where
    due: Where
    whole: bool = False
    reduced: bool = False
    moved: bool = False

    @property
    def rooted(self) -> bool:
        """Whether chunks belong to ranks and a root counts, so that they turn with it."""
        return not self.whole and "root" in (self.given, self.due)

    def pieces(self, n: int) -> int:
        """Number of chunks on n ranks where nothing is cut: a whole tensor is one."""
        if self.whole:
            return 1
        return n * n if self.given == "from" else n


def chunks_of(where: Where, rank: int, n: int, root: int, chunks: int) -> range:
    """The chunks that this rank has, out of this number of chunks."""
    if where == "all" or (where == "root" and rank == root):
        return range(chunks)
    if where == "own":
        return range(rank, rank + 1)
    if where == "from":
        return range(rank * n, (rank + 1) * n)
    if where == "to":
        return range(rank, n * n, n)
    return range(0)


# ------------------------------------------------------------------------------------------ chunks


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Number of elements of each chunk: ``each``, and the first ``larger`` of them one more."""

    chunks: int
    each: int
    larger: int = 0

    @classmethod
    def cut(cls, elements: int, chunks: int) -> ChunkSizes:
        """Chunks that are as equal as can be, as numpy.array_split cuts."""
        return cls(chunks, *divmod(elements, chunks))

    def before(self, chunk: int) -> int:
        """Elements of all chunks before this one."""
        return chunk * self.each + min(chunk, self.larger)

    def of(self, chunk: int) -> int:
        """Elements of this chunk."""
        return self.each + (chunk < self.larger)


# ------------------------------------------------------------------------------------------ rounds

Move = tuple[int, int, Sequence[int]]
"""Sender and receiver of a message, and its chunks, in the order in which they lie in it."""


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are sent at the same time.

    Attributes:
        moves: no two of them have a sender, or a receiver, in common.
        reduce: the receiver combines a chunk with what it holds; else it takes its place.
        content: of these chunks: what the sender holds, what it began with, or what the last
            message that it got had in them.
        phase: of the algorithm, in a word or two; empty: it has only one.
    """

    moves: Sequence[Move]
    reduce: bool = False
    content: Content = "held"
    phase: str = ""


# ---------------------------------------------------------------------------------------- schedule


@dataclass(frozen=True, slots=True)
class Schedule:
    """An algorithm applied: to n ranks, a root and a number of elements. Every engine gets one.

    Attributes:
        algorithm: whose schedule it is.
        n: ranks.
        root: of the op, where it has one.
        sizes: of the chunks, in elements.
    """

    algorithm: Algorithm
    n: int
    root: int
    sizes: ChunkSizes

    @classmethod
    def of(
        cls, algorithm: Algorithm, n: int, elements: int, root: int = 0, chunks: int | None = None
    ) -> Schedule:
        """The schedule for this many elements.

        Args:
            algorithm: whose schedule.
            n: ranks.
            elements: of the tensor that is cut; where an op has pieces of its own, of one piece.
            root: of the op, where it has one.
            chunks: for an algorithm that leaves it open; None: its usual number.
        """
        count = (chunks if algorithm.chunked else None) or algorithm.chunks(n)
        whole = algorithm.goal.whole
        return cls(
            algorithm,
            n,
            root,
            ChunkSizes.cut(elements, count) if whole else ChunkSizes(count, elements),
        )

    @property
    def goal(self) -> Goal:
        """What the op asks for."""
        return self.algorithm.goal

    def given(self, rank: int) -> range:
        """The chunks that this rank has before."""
        return chunks_of(self.goal.given, rank, self.n, self.root, self.sizes.chunks)

    def due(self, rank: int) -> range:
        """The chunks that it must have after."""
        return chunks_of(self.goal.due, rank, self.n, self.root, self.sizes.chunks)

    def complete(self, chunk: int) -> tuple[int, ...]:
        """The ranks whose contributions are in this chunk at the end."""
        if self.goal.reduced:
            return tuple(range(self.n))
        if self.goal.given == "root":
            return (self.root,)
        return (chunk,) if self.goal.given == "own" else (chunk // self.n,)

    def name(self, chunk: int) -> str:
        """What people call it: its number, or ``0→3`` where each rank has a part for each."""
        return f"{chunk // self.n}→{chunk % self.n}" if self.goal.given == "from" else str(chunk)

    def rounds(self) -> Iterator[Round]:
        """The algorithm's rounds, as if rank 0 were the root."""
        return self.algorithm.rounds(self.n, self.sizes.chunks)

    def steps(self) -> Iterator[PlayedRound]:
        """The schedule written out, with the ranks as they are.

        Raises:
            ScheduleError: in one round a rank sends or receives twice, or sends to itself.
        """
        for number, each in enumerate(self.rounds(), start=1):
            found = tuple(self._transfer(each, *move) for move in each.moves)
            if len({each.src for each in found}) < len(found):
                raise ScheduleError(f"In round {number} a rank sends two messages.")
            if len({each.dst for each in found}) < len(found):
                raise ScheduleError(f"In round {number} a rank receives two messages.")
            if any(each.src == each.dst for each in found):
                raise ScheduleError(f"In round {number} a rank sends to itself.")
            yield PlayedRound(number, each.phase, found)

    def _transfer(self, each: Round, src: int, dst: int, chunks: Sequence[int]) -> Transfer:
        carried = tuple(map(self._turned, chunks) if self.goal.rooted else chunks)
        elements = sum(map(self.sizes.of, carried))
        ends = self._turned(src), self._turned(dst)
        return Transfer(*ends, carried, elements, each.reduce, each.content)

    def _turned(self, rank: int) -> int:
        return (rank + self.root) % self.n
