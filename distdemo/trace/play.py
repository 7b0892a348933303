"""A schedule played without processes, also with one message gone wrong.

What a chunk holds is anything that can be combined: numbers, or the ranks whose contributions are
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from distdemo.errors import UsageError
from distdemo.trace.records import Fault, FaultKind, PlayedRound, Transfer
from distdemo.trace.schedule import Schedule, ScheduleError

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks, each as often as its contribution is in a chunk, in order."""
FEW = 8  # messages of a round of which the first that does harm is taken


class Holdings(Generic[V]):
    """All ranks, and what each chunk of theirs holds.

    Args:
        schedule: whose steps will be played.
        start: what each rank holds before, by chunk.
        combine: two of what chunks hold into one; what was held, then what came.
        absent: what a chunk holds that was never filled; None: to send it is an error.

    Attributes:
        held: what each rank holds now, by chunk.
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

    def play(self, step: PlayedRound) -> None:
        """One round: all is sent as it was before, then it arrives.

        Raises:
            ScheduleError: a rank sends a chunk that it does not have.
        """
        messages = [(each, self._message(step, each)) for each in step.transfers]
        if self._moved:
            for each in step.transfers:
                for chunk in each.chunks:
                    self.held[each.src].pop(chunk, None)
        for each, message in messages:
            held = self.held[each.dst]
            for chunk, content in message.items():
                combined = each.reduce and chunk in held
                held[chunk] = self._combine(held[chunk], content) if combined else content
            self._last[each.dst] = message

    def _message(self, step: PlayedRound, transfer: Transfer) -> dict[int, V]:
        sources = {"held": self.held, "original": self._start, "last": self._last}
        source = sources[transfer.content][transfer.src]
        message = {}
        for chunk in transfer.chunks:
            content = source.get(chunk, self._absent)
            if content is None:
                raise ScheduleError(
                    f"In round {step.number} rank {transfer.src} sends chunk {chunk}, "
                    "which it does not have."
                )
            message[chunk] = content
        return message


def contributions(schedule: Schedule, *, forgiving: bool = False) -> Holdings[Contributions]:
    """Before the first round, with whose contributions are in what.

    Args:
        schedule: of any number of ranks that can be written out.
        forgiving: a chunk that was never filled holds nobody's, instead of being an error.
    """
    start = [dict.fromkeys(schedule.given(rank), (rank,)) for rank in range(schedule.n)]
    absent: Contributions | None = () if forgiving else None
    return Holdings(schedule, start, lambda held, came: tuple(sorted(held + came)), absent)


def played(
    schedule: Schedule, fault: Fault | None = None
) -> Iterator[tuple[PlayedRound, Holdings[Contributions]]]:
    """Each round with what all hold after it, always the same object.

    Args:
        schedule: as above.
        fault: what goes wrong, if anything.
    """
    holdings = contributions(schedule, forgiving=fault is not None)
    for step in steps(schedule, fault):
        holdings.play(step)
        yield step, holdings


# ------------------------------------------------------------------------------------------ faults


def steps(schedule: Schedule, fault: Fault | None) -> Iterator[PlayedRound]:
    """The schedule's steps, one of them with the fault."""
    for step in schedule.steps():
        if fault is None or step.number != fault.round:
            yield step
            continue
        found: list[Transfer] = []
        for each in step.transfers:
            if each.src != fault.src:
                found.append(each)
            elif fault.fault == "twice":
                found += [each, each]
            elif fault.fault == "neighbour":
                beside = (each.dst + 1) % schedule.n
                beside = (beside + 1) % schedule.n if beside == each.src else beside
                found.append(replace(each, dst=beside))
        yield replace(step, transfers=tuple(found))


def find_fault(
    schedule: Schedule, kind: FaultKind, number: int | None = None, src: int | None = None
) -> Fault:
    """The fault that is made: of this rank in this round, or an early one that spoils the result.

    Not each does: a sum that goes to the wrong neighbour early in a ring meets there the rest of it
    later, and all is well in the end. So messages of the first, the middle and the last round are
    tried before all others.

    Raises:
        UsageError: the schedule has no such message, or it can't go wrong so.
    """
    every = list(schedule.steps())
    likely = {1, (len(every) + 1) // 2, len(every)}
    every.sort(key=lambda each: each.number not in likely)
    fitting = [
        fault
        for each in every
        if number in (None, each.number)
        for fault in _faults(schedule, kind, each)
        if src in (None, fault.src)
    ]
    tried = fitting if number is None else fitting[:FEW]
    found = next((fault for fault in tried if harms(schedule, fault)), None)
    if found is None and number is not None:
        found = next(iter(fitting), None)
    if found is None:
        raise UsageError(
            f"There is no such message to spoil by {kind}.",
            f"{schedule.algorithm.name} on {schedule.n} ranks has {len(every)} rounds; twice needs "
            "a message that is reduced, and neighbour three ranks.",
            f"Try --spoil {kind if number is not None else 'drop'}, or more ranks.",
        )
    return found


def _faults(schedule: Schedule, kind: FaultKind, step: PlayedRound) -> list[Fault]:
    """One for each message of this round that can go wrong so.

    Where ranks' numbers are combined rank 0 comes last: its first number is 0 by default, and a sum
    without it, or with it twice, is right by chance.
    """
    if kind == "neighbour" and schedule.n < 3:
        return []
    sent = [each for each in step.transfers if each.elements and (each.reduce or kind != "twice")]
    if schedule.goal.reduced:
        sent.sort(key=lambda each: each.src == 0)
    return [Fault(kind, step.number, each.src) for each in sent]


def harms(schedule: Schedule, fault: Fault) -> bool:
    """Whether any rank ends with other contributions than it should."""
    *_, (_, holdings) = played(schedule, fault)
    return any(
        holdings.held[rank].get(chunk) != schedule.complete(chunk)
        for rank in range(schedule.n)
        for chunk in schedule.due(rank)
    )
