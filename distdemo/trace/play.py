"""Play a schedule without processes, optionally with a fault in one message.

A chunk's content is anything that can be combined: numbers, or the ranks that contributed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from distdemo.errors import UsageError
from distdemo.schedules.schedule import Schedule, ScheduleError, Step, Transfer
from distdemo.trace.records import Fault, FaultKind

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks that contributed to a chunk, sorted, each repeated once per contribution."""
MOST_CANDIDATES = 8  # messages of a round that are tried to find one that changes the result


class Holdings(Generic[V]):
    """Contents of every rank's chunks.

    Args:
        schedule: Schedule to play.
        start: Each rank's initial contents, by chunk.
        combine: Function that combines the held and the received content.
        absent: Content of a chunk that was never filled; if None, sending one is an error.

    Attributes:
        held: Each rank's current contents, by chunk.
    """

    def __init__(
        self,
        schedule: Schedule,
        start: Sequence[dict[int, V]],
        combine: Callable[[V, V], V],
        absent: V | None = None,
    ) -> None:
        self._moved = schedule.goal.moved
        self._combine, self._absent = combine, absent
        self._start = tuple(dict(each) for each in start)
        self._last: list[dict[int, V]] = [{} for _ in start]
        self.held = tuple(dict(each) for each in start)

    def play(self, step: Step) -> None:
        """Play one round: all messages are sent before any arrives.

        Raises:
            ScheduleError: A rank sends a chunk that it doesn't hold.
        """
        messages = [(transfer, self._message(step, transfer)) for transfer in step.transfers]
        if self._moved:
            for transfer in step.transfers:
                for chunk in transfer.chunks:
                    self.held[transfer.src].pop(chunk, None)
        for transfer, message in messages:
            held = self.held[transfer.dst]
            for chunk, content in message.items():
                combined = transfer.reduce and chunk in held
                held[chunk] = self._combine(held[chunk], content) if combined else content
            self._last[transfer.dst] = message

    def _message(self, step: Step, transfer: Transfer) -> dict[int, V]:
        sources = {"held": self.held, "original": self._start, "last": self._last}
        source = sources[transfer.content][transfer.src]
        message = {}
        for chunk in transfer.chunks:
            content = source.get(chunk, self._absent)
            if content is None:
                raise ScheduleError(
                    f"In round {step.number} rank {transfer.src} sends chunk {chunk}, "
                    "which it doesn't hold."
                )
            message[chunk] = content
        return message


def contributions(schedule: Schedule, *, allow_missing: bool = False) -> Holdings[Contributions]:
    """Return the holdings before the first round, with contributions as contents.

    Args:
        schedule: Schedule with few enough ranks to be written out.
        allow_missing: True if a chunk that was never filled counts as empty instead of as an error.
    """
    start = [dict.fromkeys(schedule.given(rank), (rank,)) for rank in range(schedule.n)]
    absent: Contributions | None = () if allow_missing else None
    return Holdings(schedule, start, lambda held, received: tuple(sorted(held + received)), absent)


def play_rounds(
    schedule: Schedule, fault: Fault | None = None
) -> Iterator[tuple[Step, Holdings[Contributions]]]:
    """Yield each round with the holdings after it, which are one object that changes.

    Args:
        schedule: Schedule to play.
        fault: Fault to inject, if any.
    """
    holdings = contributions(schedule, allow_missing=fault is not None)
    for step in inject_fault(schedule, fault):
        holdings.play(step)
        yield step, holdings


# ------------------------------------------------------------------------------------------ faults


def inject_fault(schedule: Schedule, fault: Fault | None) -> Iterator[Step]:
    """Yield the schedule's steps, one of them with the fault."""
    for step in schedule.steps():
        if fault is None or step.number != fault.round:
            yield step
            continue
        transfers: list[Transfer] = []
        for transfer in step.transfers:
            if transfer.src != fault.src:
                transfers.append(transfer)
            elif fault.fault == "twice":
                transfers += [transfer, transfer]
            elif fault.fault == "neighbour":
                neighbour = (transfer.dst + 1) % schedule.n
                if neighbour == transfer.src:
                    neighbour = (neighbour + 1) % schedule.n
                transfers.append(replace(transfer, dst=neighbour))
        yield replace(step, transfers=tuple(transfers))


def find_fault(
    schedule: Schedule, kind: FaultKind, number: int | None = None, src: int | None = None
) -> Fault:
    """Return the fault of this rank in this round, or an early one that changes the result.

    Not every fault does: a sum sent to the wrong neighbour early in a ring is combined there with
    the rest of it later, and the result is right. Messages of the first, middle and last rounds are
    tried first.

    Raises:
        UsageError: The schedule has no such message, or this fault can't occur in it.
    """
    steps = list(schedule.steps())
    likely = {1, (len(steps) + 1) // 2, len(steps)}
    candidates = [each for each in steps if number in (None, each.number)]
    candidates.sort(key=lambda each: each.number not in likely)
    faults = [
        fault
        for each in candidates
        for fault in _faults(schedule, kind, each)
        if src in (None, fault.src)
    ]
    if not faults:
        raise UsageError(
            f"No message matches the fault {kind}.",
            f"{schedule.algorithm.name} on {schedule.n} ranks has {len(steps)} rounds; twice needs "
            "a message that is reduced, and neighbour needs three ranks.",
            "Try --spoil drop, or more ranks.",
        )
    tried = faults if number is None else faults[:MOST_CANDIDATES]
    return next((each for each in tried if changes_result(schedule, each)), faults[0])


def _faults(schedule: Schedule, kind: FaultKind, step: Step) -> list[Fault]:
    """Return one fault per message of this round to which this kind applies.

    If values are reduced, rank 0 comes last: its first number is 0 by default, so a sum without it,
    or with it twice, is right by chance.
    """
    if kind == "neighbour" and schedule.n < 3:
        return []
    messages = [
        each for each in step.transfers if each.elements and (each.reduce or kind != "twice")
    ]
    if schedule.goal.reduced:
        messages.sort(key=lambda transfer: transfer.src == 0)
    return [Fault(kind, step.number, transfer.src) for transfer in messages]


def changes_result(schedule: Schedule, fault: Fault) -> bool:
    """Return True if any rank ends with wrong contributions."""
    *_, (_, holdings) = play_rounds(schedule, fault)
    return any(
        holdings.held[rank].get(chunk) != schedule.complete(chunk)
        for rank in range(schedule.n)
        for chunk in schedule.due(rank)
    )
