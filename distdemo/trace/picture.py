"""What all ranks hold, round by round: contributions from the schedule, numbers from the ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from distdemo.ops.spec import Number
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.board import Contributions, contributions, played
from distdemo.trace.plans import divides, steps_of
from distdemo.trace.scheduling import Step
from distdemo.trace.tracing import Cell, Moment, Played, RankTrace, TraceSpec

Place = tuple[int, int]
"""A rank and a chunk."""


@dataclass(slots=True)
class Picture:
    """All rounds.

    Attributes:
        start: what all ranks hold before the first one.
        rounds: each with what changed by it.
        held: whose contributions are where after the last one, by rank and chunk.
        since: the round after which a place first differed from the right schedule's.
    """

    start: tuple[tuple[Cell, ...], ...]
    rounds: tuple[Played, ...]
    held: tuple[dict[int, Contributions], ...]
    since: dict[Place, int] = field(default_factory=dict)


def picture(
    spec: TraceSpec, plan: Plan, traces: Sequence[RankTrace], hosts: Sequence[str] = ()
) -> Picture:
    """The rounds of this run.

    Args:
        spec: what was asked for.
        plan: the right one.
        traces: one a rank, in order; none: on paper, without numbers and moments.
        hosts: of the ranks, where there are several.
    """
    painter = Painter(plan, traces)
    board = contributions(plan, forgiving=True)
    start = painter.start(board.held)
    moments = on_one_clock(traces, hosts)
    last = len(moments)  # none on paper, where no number changes when it is divided
    rounds = []
    for step, now in played(plan, steps_of(spec, plan)):
        board = now
        divided = divides(spec.op) and step.number == last
        arrived, gone = painter.changes(step, now.held, all_due=divided)
        rounds.append(Played(step, arrived, gone, moments[step.number - 1] if traces else ()))
    since = {} if spec.fault is None else _since(spec, plan)
    return Picture(start, tuple(rounds), board.held, since)


class Painter:
    """Makes cells of what the board says and the ranks found.

    Args:
        plan: says what is complete, and what is wanted where.
        traces: one a rank, or none.
    """

    def __init__(self, plan: Plan, traces: Sequence[RankTrace]) -> None:
        self._plan, self._traces = plan, traces
        self._due = [plan.due(rank) for rank in range(plan.n)]
        self._complete: dict[int, Contributions] = {}

    def start(self, held: Sequence[dict[int, Contributions]]) -> tuple[tuple[Cell, ...], ...]:
        """All cells before the first round."""
        return tuple(
            tuple(self._cell(rank, chunk, held[rank][chunk], 0) for chunk in sorted(held[rank]))
            for rank in range(self._plan.n)
        )

    def changes(
        self, step: Step, held: Sequence[dict[int, Contributions]], *, all_due: bool
    ) -> tuple[tuple[tuple[Cell, ...], ...], tuple[tuple[int, ...], ...]]:
        """What arrived on each rank in this round, and what it has no more.

        Args:
            step: the round.
            held: what all hold after it.
            all_due: all that a rank has to hold has changed as well.
        """
        arrived: list[set[int]] = [set(due) if all_due else set() for due in self._due]
        gone: list[set[int]] = [set() for _ in held]
        for each in step.transfers:
            arrived[each.dst].update(each.chunks)
            gone[each.src].update(each.chunks)
        cells = tuple(
            tuple(
                self._cell(rank, chunk, held[rank][chunk], step.number)
                for chunk in sorted(chunks)
                if chunk in held[rank]
            )
            for rank, chunks in enumerate(arrived)
        )
        return cells, tuple(
            tuple(sorted(chunks - here.keys())) for chunks, here in zip(gone, held, strict=True)
        )

    def _cell(self, rank: int, chunk: int, ranks: Contributions, number: int) -> Cell:
        if chunk not in self._complete:
            self._complete[chunk] = self._plan.complete(chunk)
        complete, wanted = ranks == self._complete[chunk], chunk in self._due[rank]
        return Cell(chunk, ranks, self._numbers(rank, chunk, number), complete, wanted)

    def _numbers(self, rank: int, chunk: int, number: int) -> tuple[Number | str, ...]:
        if not self._traces:
            return ()
        trace = self._traces[rank]
        return (trace.values[number - 1] if number else trace.start).get(chunk, ())


def on_one_clock(
    traces: Sequence[RankTrace], hosts: Sequence[str] = ()
) -> list[tuple[Moment, ...]]:
    """The moments of each round, counted from where the first rank began the first one.

    Args:
        traces: one a rank.
        hosts: of the ranks; with several each counts from its own first moment, as their clocks
            can't be compared.
    """
    homes = hosts or [""] * len(traces)
    first: dict[str, float] = {}
    for home, trace in zip(homes, traces, strict=True):
        for moment in trace.moments[:1]:
            first[home] = min(first.get(home, moment.began), moment.began)
    return [
        tuple(
            Moment(moment.began - first[home], moment.ended - first[home])
            for home, moment in zip(homes, moments, strict=True)
        )
        for moments in zip(*(trace.moments for trace in traces), strict=True)
    ]


def _since(spec: TraceSpec, plan: Plan) -> dict[Place, int]:
    """The round after which each place first differed from the right schedule's."""
    found: dict[Place, int] = {}
    both = zip(played(plan), played(plan, steps_of(spec, plan)), strict=True)
    for (right, wanted), (wrong, got) in both:
        for rank, chunk in _touched((right, wrong)):
            if wanted.held[rank].get(chunk) != got.held[rank].get(chunk):
                found.setdefault((rank, chunk), right.number)
    return found


def _touched(steps: Collection[Step]) -> Iterator[Place]:
    for step in steps:
        for each in step.transfers:
            for chunk in each.chunks:
                yield each.src, chunk
                yield each.dst, chunk
