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


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Elements per chunk: ``smaller``, and one more in the first ``larger`` chunks."""

    chunks: int
    smaller: int
    larger: int = 0

    def before(self, chunk: int) -> int:
        """Return the number of elements in all chunks before this one."""
        return chunk * self.smaller + min(chunk, self.larger)

    def of(self, chunk: int) -> int:
        """Return the number of elements in this chunk."""
        return self.smaller + (chunk < self.larger)


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
class Exchange:
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
    def of(cls, algorithm: Algorithm, n: int, elements: int, root: int = 0) -> Schedule:
        """Return the schedule for this number of elements.

        Args:
            algorithm: Algorithm to apply.
            n: Number of ranks.
            elements: Elements of the tensor that is cut as evenly as possible, or of one piece if
                the op has pieces.
            root: Root of the op, if it has one.
        """
        count = algorithm.chunks(n)
        smaller, larger = divmod(elements, count) if algorithm.goal.whole else (elements, 0)
        return cls(algorithm, n, root, ChunkSizes(count, smaller, larger))

    @property
    def goal(self) -> Goal:
        """Goal of the op."""
        return self.algorithm.goal

    def given(self, rank: int) -> range:
        """Return the chunks that this rank holds before the first round."""
        return self._chunks(self.goal.given, rank)

    def due(self, rank: int) -> range:
        """Return the chunks that this rank must hold after the last round."""
        return self._chunks(self.goal.due, rank)

    def _chunks(self, where: Where, rank: int) -> range:
        if where == "all" or (where == "root" and rank == self.root):
            return range(self.sizes.chunks)
        if where == "own":
            return range(rank, rank + 1)
        if where == "from":
            return range(rank * self.n, (rank + 1) * self.n)
        return range(rank, self.n * self.n, self.n) if where == "to" else range(0)

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

    def exchanges(self) -> Iterator[Exchange]:
        """Yield the rounds written out, with real rank numbers.

        Raises:
            ScheduleError: A rank sends or receives twice in one round, or sends to itself.
        """
        rounds = self.algorithm.rounds(self.n, self.sizes.chunks)
        for number, moves in enumerate(rounds, start=1):
            transfers = tuple(self._transfer(moves, *move) for move in moves.moves)
            problems = {
                "a rank sends two messages": len({t.src for t in transfers}) < len(transfers),
                "a rank receives two messages": len({t.dst for t in transfers}) < len(transfers),
                "a rank sends to itself": any(t.src == t.dst for t in transfers),
            }
            for problem, has_problem in problems.items():
                if has_problem:
                    raise ScheduleError(f"In round {number} {problem}.")
            yield Exchange(number, moves.phase, transfers)

    def _transfer(self, moves: Round, src: int, dst: int, chunks: Sequence[int]) -> Transfer:
        def rotated(rank: int) -> int:
            return (rank + self.root) % self.n

        carried = tuple(map(rotated, chunks) if self.goal.rooted else chunks)
        elements = sum(map(self.sizes.of, carried))
        return Transfer(rotated(src), rotated(dst), carried, elements, moves.reduce, moves.content)


# --------------------------------------------------------------------------------------------- cost


@dataclass(frozen=True, slots=True)
class Counts:
    """Rounds and bytes of a schedule.

    Attributes:
        rounds: Number of rounds.
        sent_bytes: Bytes sent by the rank that sends most.
        busiest_bytes: Bytes sent and received by the busiest rank.
        total_bytes: Bytes sent by all ranks together.
        serial_bytes: Bytes of each round's largest message, added up. Each costs β once.
    """

    rounds: int
    sent_bytes: int
    busiest_bytes: int
    total_bytes: int
    serial_bytes: int


def by_formula(schedule: Schedule, payload: int) -> Counts:
    """Evaluate the algorithm's formulas, which assume equal chunks. Fast for any n.

    Args:
        schedule: Schedule to evaluate.
        payload: S in bytes.
    """
    rounds, *shares = schedule.algorithm.formulas.values(schedule.n, schedule.sizes.chunks)
    return Counts(int(rounds), *(round(share * payload) for share in shares))


# ------------------------------------------------------------------------------ message by message


def count(schedule: Schedule, itemsize: int) -> tuple[Counts, list[int], list[int]]:
    """Count every message. Return the counts, and the bytes that each rank sends and receives.

    256 ranks take a second; the time grows as n².

    Args:
        schedule: Schedule to count.
        itemsize: Bytes per element.
    """
    sent = [0] * schedule.n
    received = [0] * schedule.n
    largest = []
    for exchange in schedule.exchanges():
        for transfer in exchange.transfers:
            size = transfer.elements * itemsize
            sent[transfer.src] += size
            received[transfer.dst] += size
        largest.append(itemsize * max((t.elements for t in exchange.transfers), default=0))
    counts = Counts(
        rounds=len(largest),
        sent_bytes=max(sent),
        busiest_bytes=max(map(sum, zip(sent, received, strict=True))),
        total_bytes=sum(sent),
        serial_bytes=sum(largest),
    )
    return counts, sent, received
