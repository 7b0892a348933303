"""Play a schedule without processes.

A chunk's content is anything that can be combined: numbers, or the ranks that contributed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from distdemo.schedules.schedule import Exchange, Schedule, ScheduleError, Transfer

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks that contributed to a chunk, sorted, each repeated once per contribution."""


class Holdings(Generic[V]):
    """Contents of every rank's chunks.

    Args:
        schedule: Schedule to play.
        start: Each rank's initial contents, by chunk.
        combine: Function that combines the held and the received content.

    Attributes:
        held: Each rank's current contents, by chunk.
    """

    def __init__(
        self, schedule: Schedule, start: Sequence[dict[int, V]], combine: Callable[[V, V], V]
    ) -> None:
        self._moved = schedule.goal.moved
        self._combine = combine
        self._start = tuple(dict(contents) for contents in start)
        self._last: list[dict[int, V]] = [{} for _ in start]
        self.held = tuple(dict(contents) for contents in start)

    def play(self, exchange: Exchange) -> None:
        """Play one round: all messages are sent before any arrives.

        Raises:
            ScheduleError: A rank sends a chunk that it doesn't hold.
        """
        messages = [
            (transfer, self._message(exchange.number, transfer)) for transfer in exchange.transfers
        ]
        if self._moved:
            for transfer in exchange.transfers:
                for chunk in transfer.chunks:
                    self.held[transfer.src].pop(chunk, None)
        for transfer, message in messages:
            contents = self.held[transfer.dst]
            for chunk, content in message.items():
                combined = transfer.reduce and chunk in contents
                contents[chunk] = self._combine(contents[chunk], content) if combined else content
            self._last[transfer.dst] = message

    def _message(self, number: int, transfer: Transfer) -> dict[int, V]:
        sources = {"held": self.held, "original": self._start, "last": self._last}
        source = sources[transfer.content][transfer.src]
        for chunk in transfer.chunks:
            if chunk not in source:
                raise ScheduleError(
                    f"In round {number} rank {transfer.src} sends chunk {chunk}, "
                    "which it doesn't hold."
                )
        return {chunk: source[chunk] for chunk in transfer.chunks}


def contributions(schedule: Schedule) -> Holdings[Contributions]:
    """Return the holdings before the first round, with contributions as contents."""
    start: list[dict[int, Contributions]] = [
        dict.fromkeys(schedule.given(rank), (rank,)) for rank in range(schedule.n)
    ]
    return Holdings(schedule, start, lambda held, received: tuple(sorted(held + received)))
