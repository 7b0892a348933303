"""An algorithm applied: to n ranks, a root and so many elements. What every engine is handed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distdemo.errors import DistdemoError
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.schedule import Round, Sends, Sizes
from distdemo.trace.algorithms.task import TASKS, Task, holds
from distdemo.trace.scheduling import Step, Transfer


class ScheduleError(DistdemoError):
    """A schedule asks for what no link can do; a fault of the algorithm's file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ranks have to do.

    Attributes:
        algorithm: whose schedule it is.
        n: ranks.
        root: of the op, where it has one.
        sizes: of the chunks, in elements.
    """

    algorithm: Algorithm
    n: int
    root: int
    sizes: Sizes

    @property
    def task(self) -> Task:
        """What the op asks for."""
        return TASKS[self.algorithm.op]

    def given(self, rank: int) -> range:
        """The chunks that this rank has before."""
        return holds(self.task.given, rank, self.n, self.root, self.sizes.chunks)

    def due(self, rank: int) -> range:
        """The chunks that it has to have after."""
        return holds(self.task.due, rank, self.n, self.root, self.sizes.chunks)

    def complete(self, chunk: int) -> tuple[int, ...]:
        """Whose contributions are in this chunk at the end."""
        if self.task.reduced:
            return tuple(range(self.n))
        if self.task.given == "root":
            return (self.root,)
        return (chunk,) if self.task.given == "own" else (chunk // self.n,)

    def name(self, chunk: int) -> str:
        """What people call it: its number; of all_to_all ``0→3``."""
        if self.task.given == "from":
            return f"{chunk // self.n}→{chunk % self.n}"
        return str(chunk)

    def rounds(self) -> Iterator[Round]:
        """The schedule, in few words, as if rank 0 were the root."""
        return self.algorithm.rounds(self.n, self.sizes.chunks)

    def steps(self) -> Iterator[Step]:
        """The schedule, written out, of the ranks as they are.

        Raises:
            ScheduleError: in one round a rank sends or receives twice, or sends to itself.
        """
        for number, each in enumerate(self.rounds(), start=1):
            found = tuple(
                self._transfer(sends, rank) for sends in each.sends for rank in sends.ranks
            )
            step = Step(number, each.phase, found)
            check(step)
            yield step

    def _transfer(self, sends: Sends, rank: int) -> Transfer:
        receiver = sends.to.of(rank, self.n)
        chunks = sends.chunks.of(rank, receiver, self.n, self.sizes.chunks)
        if self.task.rooted:
            chunks = tuple(self._turned(chunk) for chunk in chunks)
        elements = sum(self.sizes.within(chunk, chunk + 1) for chunk in chunks)
        ends = self._turned(rank), self._turned(receiver)
        return Transfer(*ends, chunks, elements, sends.reduce, sends.original)

    def _turned(self, rank: int) -> int:
        return (rank + self.root) % self.n


def check(step: Step) -> None:
    """Refuse what no link can do.

    Raises:
        ScheduleError: a rank sends or receives twice, or sends to itself.
    """
    for verb, ends in (
        ("sends", [each.src for each in step.transfers]),
        ("receives", [each.dst for each in step.transfers]),
    ):
        twice = (
            sorted({rank for rank in ends if ends.count(rank) > 1})
            if len(set(ends)) < len(ends)
            else []
        )
        if twice:
            raise ScheduleError(f"In round {step.number} rank {twice[0]} {verb} two messages.")
    for each in step.transfers:
        if each.src == each.dst:
            raise ScheduleError(f"In round {step.number} rank {each.src} sends to itself.")


def plan_of(
    algorithm: Algorithm, n: int, elements: int, root: int = 0, chunks: int | None = None
) -> Plan:
    """The plan for this many elements.

    Args:
        algorithm: whose schedule.
        n: ranks.
        elements: of the tensor that is cut; of ops with pieces of their own, of one piece.
        root: of the op, where it has one.
        chunks: of an algorithm that leaves it open; None: as many as it likes.
    """
    count = chunks or algorithm.chunks(n)
    if TASKS[algorithm.op].whole:
        return Plan(algorithm, n, root, Sizes.cut(elements, count))
    return Plan(algorithm, n, root, Sizes(count, elements))
