"""Schedules: rounds in which ranks send chunks to each other.

Per round, a rank sends at most one message and receives at most one. A bidirectional link can do
both at once, so a round costs α once (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of
Collective Communication Operations in MPICH, IJHPCA 19, 2005, section 3).

Algorithms number ranks and chunks as if rank 0 were the root; ``Schedule`` rotates the numbers for
any other root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distdemo.errors import DistdemoError
from distdemo.schedules.contract import Algorithm, Content, Goal, Round, Where


class ScheduleError(DistdemoError):
    """A schedule that no link can carry out: a bug in the algorithm."""


# ------------------------------------------------------------------------------------------ chunks


def chunks_of(where: Where, rank: int, n: int, root: int, chunks: int) -> range:
    """Return the chunks that this rank has, out of this number of chunks."""
    if where == "all" or (where == "root" and rank == root):
        return range(chunks)
    if where == "own":
        return range(rank, rank + 1)
    if where == "from":
        return range(rank * n, (rank + 1) * n)
    if where == "to":
        return range(rank, n * n, n)
    return range(0)


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Elements per chunk: ``each``, and one more in the first ``larger`` chunks."""

    chunks: int
    each: int
    larger: int = 0

    @classmethod
    def cut(cls, elements: int, chunks: int) -> ChunkSizes:
        """Split elements as evenly as possible, like numpy.array_split."""
        return cls(chunks, *divmod(elements, chunks))

    def before(self, chunk: int) -> int:
        """Return the number of elements in all chunks before this one."""
        return chunk * self.each + min(chunk, self.larger)

    def of(self, chunk: int) -> int:
        """Return the number of elements in this chunk."""
        return self.each + (chunk < self.larger)


# ---------------------------------------------------------------------------------------- schedule


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message.

    Attributes:
        chunks: Chunks that it carries, in this order.
        elements: Total number of elements. A message with none isn't sent.
        reduce: True if the receiver combines it with what it holds; otherwise it replaces that.
        content: Version of the chunks that is sent.
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    elements: int
    reduce: bool = False
    content: Content = "held"


@dataclass(frozen=True, slots=True)
class Step:
    """A round written out.

    Attributes:
        number: Number of the round, starting at 1.
        phase: Phase of the algorithm; empty if it has only one.
        transfers: Messages that are sent at the same time.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """An algorithm applied to n ranks, a root and a number of elements; input of every engine.

    Attributes:
        algorithm: Algorithm of the schedule.
        n: Number of ranks.
        root: Root of the op, if it has one.
        sizes: Sizes of the chunks, in elements.
    """

    algorithm: Algorithm
    n: int
    root: int
    sizes: ChunkSizes

    @classmethod
    def of(
        cls, algorithm: Algorithm, n: int, elements: int, root: int = 0, chunks: int | None = None
    ) -> Schedule:
        """Return the schedule for this number of elements.

        Args:
            algorithm: Algorithm to apply.
            n: Number of ranks.
            elements: Elements of the tensor that is cut, or of one piece if the op has pieces.
            root: Root of the op, if it has one.
            chunks: Number of chunks, if the algorithm lets the caller choose; None for its default.
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
        """Goal of the op."""
        return self.algorithm.goal

    def given(self, rank: int) -> range:
        """Return the chunks that this rank holds before the first round."""
        return chunks_of(self.goal.given, rank, self.n, self.root, self.sizes.chunks)

    def due(self, rank: int) -> range:
        """Return the chunks that this rank must hold after the last round."""
        return chunks_of(self.goal.due, rank, self.n, self.root, self.sizes.chunks)

    def complete(self, chunk: int) -> tuple[int, ...]:
        """Return the ranks whose contributions are in this chunk at the end."""
        if self.goal.reduced:
            return tuple(range(self.n))
        if self.goal.given == "root":
            return (self.root,)
        return (chunk,) if self.goal.given == "own" else (chunk // self.n,)

    def name(self, chunk: int) -> str:
        """Return the chunk's name: its number, or ``0→3`` if each rank has a part for each."""
        return f"{chunk // self.n}→{chunk % self.n}" if self.goal.given == "from" else str(chunk)

    def rounds(self) -> Iterator[Round]:
        """Return the algorithm's rounds, as if rank 0 were the root."""
        return self.algorithm.rounds(self.n, self.sizes.chunks)

    def steps(self) -> Iterator[Step]:
        """Yield the rounds written out, with real rank numbers.

        Raises:
            ScheduleError: A rank sends or receives twice in one round, or sends to itself.
        """
        for number, each in enumerate(self.rounds(), start=1):
            transfers = tuple(self._transfer(each, *move) for move in each.moves)
            if len({each.src for each in transfers}) < len(transfers):
                raise ScheduleError(f"In round {number} a rank sends two messages.")
            if len({each.dst for each in transfers}) < len(transfers):
                raise ScheduleError(f"In round {number} a rank receives two messages.")
            if any(each.src == each.dst for each in transfers):
                raise ScheduleError(f"In round {number} a rank sends to itself.")
            yield Step(number, each.phase, transfers)

    def _transfer(self, each: Round, src: int, dst: int, chunks: Sequence[int]) -> Transfer:
        carried = tuple(map(self._rotated, chunks) if self.goal.rooted else chunks)
        elements = sum(map(self.sizes.of, carried))
        ends = self._rotated(src), self._rotated(dst)
        return Transfer(*ends, carried, elements, each.reduce, each.content)

    def _rotated(self, rank: int) -> int:
        return (rank + self.root) % self.n
