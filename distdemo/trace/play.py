"""A schedule played without processes, also with one message gone wrong.

What a chunk holds is anything that can be combined: numbers, or the ranks whose contributions are
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from distdemo.errors import UsageError
from distdemo.trace.records import Fault, FaultKind, Step, Transfer
from distdemo.trace.schedule import Plan, ScheduleError

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks, each as often as its contribution is in a chunk, in order."""
FEW = 8  # messages of a round of which the first that does harm is taken


class Holdings(Generic[V]):
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
        self._combine, self._absent = combine, absent
        self._start = tuple(dict(each) for each in start)
        self._last: list[dict[int, V]] = [{} for _ in start]
        self.held = tuple(dict(each) for each in start)

    def play(self, step: Step) -> None:
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

    def _message(self, step: Step, transfer: Transfer) -> dict[int, V]:
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


def contributions(plan: Plan, *, forgiving: bool = False) -> Holdings[Contributions]:
    """Before the first round, with whose contributions are in what.

    Args:
        plan: of any number of ranks that can be written out.
        forgiving: a chunk that was never filled holds nobody's, instead of being an error.
    """
    start = [dict.fromkeys(plan.given(rank), (rank,)) for rank in range(plan.n)]
    absent: Contributions | None = () if forgiving else None
    return Holdings(plan, start, lambda held, came: tuple(sorted(held + came)), absent)


def played(
    plan: Plan, fault: Fault | None = None
) -> Iterator[tuple[Step, Holdings[Contributions]]]:
    """Each round with what all hold after it, always the same object.

    Args:
        plan: as above.
        fault: what goes wrong, if anything.
    """
    holdings = contributions(plan, forgiving=fault is not None)
    for step in steps(plan, fault):
        holdings.play(step)
        yield step, holdings


# ------------------------------------------------------------------------------------------ faults


def steps(plan: Plan, fault: Fault | None) -> Iterator[Step]:
    """The plan's steps, one of them with the fault."""
    for step in plan.steps():
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
                beside = (each.dst + 1) % plan.n
                beside = (beside + 1) % plan.n if beside == each.src else beside
                found.append(replace(each, dst=beside))
        yield replace(step, transfers=tuple(found))


def find_fault(
    plan: Plan, kind: FaultKind, number: int | None = None, src: int | None = None
) -> Fault:
    """The fault that is made: of this rank in this round, or an early one that spoils the result.

    Not each does: a sum that goes to the wrong neighbour early in a ring meets there the rest of it
    later, and all is well in the end. So messages of the first, the middle and the last round are
    tried before all others.

    Raises:
        UsageError: the plan has no such message, or it can't go wrong so.
    """
    if kind == "neighbour" and plan.n < 3:
        raise UsageError(
            "Two ranks have no wrong neighbour.",
            "The rank after the right one is the sender itself.",
            "Try -n 3, or --spoil drop.",
        )
    every = {step.number: step for step in plan.steps()}
    last = len(every)
    if number is not None and number not in every:
        raise UsageError(
            f"There is no round {number} to spoil.",
            f"{plan.algorithm.name} on {plan.n} ranks has {last} rounds.",
            f"Try --spoil {kind}." if last else "Try more ranks.",
        )
    likely = {1, (last + 1) // 2, last}
    rounds = [number] if number is not None else sorted(every, key=lambda each: each not in likely)
    fitting = (fault for each in rounds for fault in _faults(plan, kind, every[each]))
    if number is None:
        found = next((fault for fault in fitting if harms(plan, fault)), None)
    else:
        those = [fault for fault in fitting if src in (None, fault.src)]
        harmful = (fault for fault in those[:FEW] if harms(plan, fault))
        found = next(harmful, those[0] if those else None)
    if found is None:
        raise _nothing_to_spoil(plan, kind, src, None if number is None else every[number])
    return found


def _faults(plan: Plan, kind: FaultKind, step: Step) -> list[Fault]:
    """One for each message of this round that can go wrong so.

    Where ranks' numbers are combined rank 0 comes last: its first number is 0 by default, and a sum
    without it, or with it twice, is right by chance.
    """
    sent = [each for each in step.transfers if each.elements and (each.reduce or kind != "twice")]
    if plan.task.reduced:
        sent.sort(key=lambda each: each.src == 0)
    return [Fault(kind, step.number, each.src) for each in sent]


def _nothing_to_spoil(
    plan: Plan, kind: FaultKind, src: int | None, step: Step | None
) -> UsageError:
    if step is None:
        return UsageError(
            f"Nothing here can be spoiled by {kind}.",
            "No message is such that the result would be another one.",
            "Try more ranks." if kind == "drop" or plan.n == 1 else "Try --spoil drop.",
        )
    senders = [each.src for each in step.transfers if each.elements]
    if kind == "twice" and (src in senders or (src is None and senders)):
        return UsageError(
            f"Round {step.number} copies: what comes twice is the same as once.",
            "Only what is reduced can be reduced twice.",
            "Try --spoil drop, or an algorithm and a round that reduce.",
        )
    who = "No rank sends anything" if src is None else f"Rank {src} sends nothing"
    return UsageError(
        f"{who} in round {step.number}.",
        f"In this round these send: {', '.join(map(str, senders)) or 'none'}.",
        f"Try --spoil {kind}:{step.number}:{senders[0]}." if senders else "Try a larger tensor.",
    )


def harms(plan: Plan, fault: Fault) -> bool:
    """Whether any rank ends with other contributions than it should.

    Chunks have nothing to do with each other: only those of the message are played.
    """
    messages = (t for step in plan.steps() if step.number == fault.round for t in step.transfers)
    touched = {chunk for each in messages if each.src == fault.src for chunk in each.chunks}
    holdings = contributions(plan, forgiving=True)
    for step in steps(plan, fault):
        holdings.play(replace(step, transfers=tuple(_only(touched, step))))
    return any(
        holdings.held[rank].get(chunk) != plan.complete(chunk)
        for rank in range(plan.n)
        for chunk in touched.intersection(plan.due(rank))
    )


def _only(chunks: Collection[int], step: Step) -> Iterator[Transfer]:
    """The messages of a round, with these chunks alone."""
    for each in step.transfers:
        kept = tuple(chunk for chunk in each.chunks if chunk in chunks)
        if kept:
            yield replace(each, chunks=kept)
