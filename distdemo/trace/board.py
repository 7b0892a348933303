"""A schedule played without processes: what every rank holds after each round.

What a chunk holds is anything that can be combined: numbers, tensors, or whose contributions are in
it (``Contributions``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from distdemo.trace.algorithms.plan import Plan, ScheduleError
from distdemo.trace.scheduling import Step, Transfer

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks, each as often as its contribution is in a chunk, in order."""


class Board(Generic[V]):
    """All ranks, and what each chunk of theirs holds.

    Args:
        plan: whose steps will be played.
        start: what each rank holds before, by chunk.
        combine: two of what chunks hold into one; what was held, then what came.
        absent: what a chunk holds that was never filled; None: to send it is an error.

    Attributes:
        held: what each rank holds now, by chunk.
    """

    def __init__(
        self,
        plan: Plan,
        start: Sequence[dict[int, V]],
        combine: Callable[[V, V], V],
        absent: V | None = None,
    ) -> None:
        self._moved = plan.task.moved
        self._start = tuple(dict(each) for each in start)
        self._combine = combine
        self._absent = absent
        self.held = tuple(dict(each) for each in start)

    def play(self, step: Step) -> None:
        """One round: all is sent as it was before, then it arrives.

        Raises:
            ScheduleError: a rank sends a chunk that it does not have.
        """
        sent = [
            (each, [(chunk, self._sent(each, chunk, step)) for chunk in each.chunks])
            for each in step.transfers
        ]
        if self._moved:
            for each in step.transfers:
                for chunk in each.chunks:
                    self.held[each.src].pop(chunk, None)
        for each, contents in sent:
            for chunk, content in contents:
                self._arrive(each, chunk, content)

    def _sent(self, transfer: Transfer, chunk: int, step: Step) -> V:
        source = (self._start if transfer.original else self.held)[transfer.src]
        content = source.get(chunk, self._absent)
        if content is None:
            raise ScheduleError(
                f"In round {step.number} rank {transfer.src} sends chunk {chunk}, "
                "which it does not have."
            )
        return content

    def _arrive(self, transfer: Transfer, chunk: int, content: V) -> None:
        held = self.held[transfer.dst]
        if transfer.reduce and chunk in held:
            content = self._combine(held[chunk], content)
        held[chunk] = content


def contributions(plan: Plan, *, forgiving: bool = False) -> Board[Contributions]:
    """Before the first round, with whose contributions are in what.

    Args:
        plan: of any number of ranks that can be written out.
        forgiving: a chunk that was never filled holds nobody's, instead of being an error.
    """
    start = [dict.fromkeys(plan.given(rank), (rank,)) for rank in range(plan.n)]
    absent: Contributions | None = () if forgiving else None
    return Board(plan, start, lambda held, came: tuple(sorted(held + came)), absent)


def played(
    plan: Plan, steps: Iterator[Step] | None = None
) -> Iterator[tuple[Step, Board[Contributions]]]:
    """Each round with the board after it, always the same object.

    Args:
        plan: as above.
        steps: others than the plan's own, as with a fault.
    """
    board = contributions(plan, forgiving=steps is not None)
    for step in plan.steps() if steps is None else steps:
        board.play(step)
        yield step, board
