"""A traced run as frames: what everybody holds, and what the round before it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from distdemo.trace.scheduling import Step
from distdemo.trace.tracing import Cell, Moment, TraceReport

ALL_ROUNDS = 40  # rounds up to which all are shown
ENDS = 2  # of more than that: so many from each end


@dataclass(frozen=True, slots=True)
class Frame:
    """What all ranks hold before the first round, or after one.

    Attributes:
        number: of the round; 0: before the first.
        step: what was sent in it; None before the first.
        held: what each rank holds, by chunk.
        changed: by rank and chunk: True: it was combined; False: it took the place.
        gone: ranks and chunks that went on in this round.
        moments: of the round, one a rank; empty on paper.
    """

    number: int
    step: Step | None
    held: tuple[dict[int, Cell], ...]
    changed: dict[tuple[int, int], bool] = field(default_factory=dict)
    gone: frozenset[tuple[int, int]] = frozenset()
    moments: tuple[Moment, ...] = ()


def frames(report: TraceReport) -> list[Frame]:
    """All of them, the start included."""
    states = report.states()
    found = [Frame(0, None, next(states))]
    for played, held in zip(report.rounds, states, strict=True):
        reduced = {
            (each.dst, chunk): each.reduce
            for each in played.step.transfers
            if each.elements
            for chunk in each.chunks
        }
        changed = {
            (rank, cell.chunk): reduced[rank, cell.chunk]
            for rank, cells in enumerate(played.arrived)
            for cell in cells
            if (rank, cell.chunk) in reduced
        }
        gone = frozenset((r, chunk) for r, chunks in enumerate(played.gone) for chunk in chunks)
        found.append(Frame(played.step.number, played.step, held, changed, gone, played.moments))
    return found


def telling(report: TraceReport, every: list[Frame]) -> list[Frame | int]:
    """Those to print, and between them how many were left out.

    Of many these are shown: both ends, the ends of each phase, when the first chunk is complete
    and the first rank is done, and where something goes wrong.
    """
    if len(every) - 1 <= ALL_ROUNDS:
        return list(every)
    kept = set(_landmarks(report, every))
    found: list[Frame | int] = []
    for frame in every:
        if frame.number in kept:
            found.append(frame)
        elif found and isinstance(found[-1], int):
            found[-1] += 1
        else:
            found.append(1)
    return found


def _landmarks(report: TraceReport, every: list[Frame]) -> Iterator[int]:
    last = every[-1].number
    yield from range(ENDS + 1)
    yield from range(last - ENDS + 1, last + 1)
    for before, after in pairwise(every):
        if before.step and after.step and before.step.phase != after.step.phase:
            yield from (before.number, after.number)
    yield from _first(every, is_complete_anywhere)
    yield from _first(every, lambda frame: _is_anybody_done(report, frame))
    yield from {each.round for each in report.wrong if each.round is not None}
    if report.spec.fault:
        yield report.spec.fault.round


def _first(every: list[Frame], is_so: Callable[[Frame], bool]) -> Iterator[int]:
    """The first frame of which this is so, unless that is how it begins."""
    found = next((frame.number for frame in every if is_so(frame)), None)
    if found:
        yield found


def is_complete_anywhere(frame: Frame) -> bool:
    """Whether any rank holds a chunk as it will be at the end."""
    return any(cell.complete for held in frame.held for cell in held.values())


def _is_anybody_done(report: TraceReport, frame: Frame) -> bool:
    """Whether any rank that wants something has it all."""
    return any(
        wanted and all(chunk in held and held[chunk].complete for chunk in wanted)
        for wanted, held in zip(report.wanted, frame.held, strict=True)
    )
