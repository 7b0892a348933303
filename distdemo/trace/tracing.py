"""A traced run, round by round: frozen records; no torch, no rich, no typer.

Bytes are whole numbers, seconds are floats. Ranks are those of the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from distdemo.demo.records import Verification
from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Number, OpSpec
from distdemo.trace.scheduling import About, Checked, Counts, Fault, Misprint, Step


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk that a rank holds.

    Attributes:
        chunk: its number.
        ranks: whose contribution is in it, each as often as it is; in order.
        values: its first numbers, as they were really there; empty in a simulation.
        complete: it holds what this chunk holds at the end, wherever it has to be.
        wanted: this rank has to hold it at the end.
    """

    chunk: int
    ranks: tuple[int, ...]
    values: tuple[Number | str, ...] = ()
    complete: bool = False
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """When a rank was busy with a round, in seconds after the first rank began the first one."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Played:
    """A round, and what changed by it. ``TraceReport.states`` gives all that ranks hold.

    Attributes:
        step: what was sent.
        arrived: chunks that are new or changed: a tuple of cells a rank, by chunk.
        gone: chunks that the rank has handed on and holds no more: a tuple of numbers a rank.
        moments: one a rank; empty in a simulation. A rank without a message has no duration.
    """

    step: Step
    arrived: tuple[tuple[Cell, ...], ...]
    gone: tuple[tuple[int, ...], ...]
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class WrongChunk:
    """A chunk that is not what it should be.

    Attributes:
        rank: where.
        chunk: which.
        element: the first wrong one, counted in the chunk; None: it is not there at all.
        got: what is there.
        expected: what should be.
        missing: ranks whose contribution is not in it.
        extra: ranks whose contribution is in it more often than once, or should not be.
        round: after which this chunk of this rank first differed from the right schedule's; None:
            it is not known.
    """

    rank: int
    chunk: int
    element: int | None
    got: Number | str | None
    expected: Number | str | None
    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    round: int | None = None


@dataclass(frozen=True, slots=True)
class RankTrace:
    """How it went on one rank.

    Attributes:
        start: the first numbers of every chunk that the rank held before the first round.
        values: after each round the same of the chunks that arrived in it.
        moments: of each round, on this machine's monotonic clock.
        sent: bytes that were handed to the backend to be sent.
        received: bytes that were handed to it to be filled.
        messages: that were sent.
        verification: of the result, as the op's own.
        wrong: chunks that are not what they should be.
    """

    rank: int
    start: dict[int, tuple[Number | str, ...]]
    values: tuple[dict[int, tuple[Number | str, ...]], ...]
    moments: tuple[Moment, ...]
    sent: int
    received: int
    messages: int
    verification: Verification
    wrong: tuple[WrongChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """One run of one algorithm.

    Attributes:
        op: with n, dtype, shape, reduce op and root.
        algorithm: its name.
        chunks: in how many the algorithm cuts; None: as many as it likes.
        fault: what is done wrong on purpose.
    """

    op: OpSpec
    algorithm: str
    chunks: int | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round; or the same on paper, where there is no world.

    Attributes:
        spec: what was asked for.
        about: the algorithm.
        traffic: of the op; its payload is the B of formulas.
        chunk_elements: of each chunk, by its number.
        chunk_names: how people call each chunk, by its number: ``2``, of all_to_all ``0→3``.
        wanted: the chunks that each rank has to hold at the end.
        start: what all hold before the first round.
        rounds: each with what changed by it.
        counts: of the schedule.
        checks: formulas beside counts.
        misprints: other formulas in print.
        handed: bytes that the ranks really handed to the backend to be sent, one number a rank;
            empty in a simulation.
        wrong: chunks that are not what they should be.
        verifications: of the results, one a rank that returned.
        world: how the ranks ended; None: a simulation.
        notes: sentences that belong under it.
        versions: of what was run.
    """

    spec: TraceSpec
    about: About
    traffic: Traffic
    chunk_elements: tuple[int, ...]
    chunk_names: tuple[str, ...]
    wanted: tuple[tuple[int, ...], ...]
    start: tuple[tuple[Cell, ...], ...]
    rounds: tuple[Played, ...]
    counts: Counts
    checks: tuple[Checked, ...]
    misprints: tuple[Misprint, ...] = ()
    handed: tuple[int, ...] = ()
    wrong: tuple[WrongChunk, ...] = ()
    verifications: tuple[Verification, ...] = ()
    world: WorldReport | None = None
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    def states(self) -> Iterator[tuple[dict[int, Cell], ...]]:
        """What each rank holds, by chunk: before the first round, and after each.

        Each is a new object, so that they can be kept and compared.
        """
        now = tuple({cell.chunk: cell for cell in cells} for cells in self.start)
        yield now
        for each in self.rounds:
            now = tuple(
                {chunk: cell for chunk, cell in held.items() if chunk not in gone}
                | {cell.chunk: cell for cell in arrived}
                for held, arrived, gone in zip(now, each.arrived, each.gone, strict=True)
            )
            yield now

    @property
    def ok(self) -> bool:
        """Whether all ranks returned, and what they returned is right."""
        if self.wrong or (self.world is not None and not self.world.ok):
            return False
        return all(each.ok for each in self.verifications)
