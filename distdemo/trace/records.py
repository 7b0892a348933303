"""What ``trace`` is asked for and what came of it: frozen records; no torch, no rich, no typer.

Their fields are the names of the JSON documents. Ranks are those of the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from distdemo.demo.records import Verification
from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Number, OpSpec

Content = Literal["held", "original", "last"]
"""What is sent of a chunk: what the sender holds, what it began with, or what the last message that
it got had in it."""
FaultKind = Literal["drop", "neighbour", "twice"]
Origin = Literal["given", "measured", "fitted"]

# --------------------------------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message.

    Attributes:
        chunks: what it carries, in this order.
        elements: of all of them together; a message of none is not sent.
        reduce: the receiver combines it with what it holds; else it takes its place.
        content: what is sent of these chunks.
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    elements: int
    reduce: bool = False
    content: Content = "held"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done wrong on purpose.

    Attributes:
        fault: ``drop`` leaves a message out, ``neighbour`` sends it to the rank after the right
            one, ``twice`` reduces it twice.
        round: of the message, from 1 on.
        src: its sender.
    """

    fault: FaultKind
    round: int
    src: int


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """An algorithm in words.

    Attributes:
        op: torch's name of what it does.
        summary: how, in a sentence.
        source: of the algorithm and its formulas.
        formulas: of ``rounds``, ``sent``, ``busiest`` and ``total``, as people write them.
    """

    op: str
    name: str
    summary: str
    source: str
    formulas: dict[str, str]


@dataclass(frozen=True, slots=True)
class AlgorithmList:
    """Result of ``trace list``: the algorithms, an op's first being the usual one."""

    algorithms: tuple[AlgorithmInfo, ...]
    ok: bool = True


# ---------------------------------------------------------------------------------- what they cost


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule does.

    Attributes:
        rounds: Number of rounds.
        sent_bytes: by the rank that sends most.
        busiest_bytes: through the rank where sent and received together are most.
        total_bytes: that all ranks send together.
        alpha_rounds: rounds in which anything is sent: how often α is paid.
        beta_bytes: of the largest message of each round, added up: how often β is paid.
    """

    rounds: int
    sent_bytes: int
    busiest_bytes: int
    total_bytes: int
    alpha_rounds: int
    beta_bytes: int


@dataclass(frozen=True, slots=True)
class FormulaCheck:
    """A formula beside what was counted.

    Attributes:
        name: ``rounds``, ``sent_bytes``, ``busiest_bytes`` or ``total_bytes``.
        formula: as people write it.
        value: what it gives here, whole or not.
        counted: what the schedule was seen to do.
        same: whether both are one number.
        exact: the formula is of equal chunks, and these are.
    """

    name: str
    formula: str
    value: float
    counted: int
    same: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a message costs, by Hockney's model: a message of s bytes takes α + s·β.

    Attributes:
        alpha_s: α, in seconds.
        beta_s_per_byte: β, in seconds.
        origin: ``given`` by the user, ``measured`` in the same world, or ``fitted`` to files.
        message_bytes: of the messages that were timed.
        runs: how often each of them was.
        files: that it was fitted to.
        series: what was fitted: ``all-reduce over gloo on 2 and 4 ranks, taken for ring``.
    """

    alpha_s: float
    beta_s_per_byte: float
    origin: Origin = "given"
    message_bytes: tuple[int, ...] = ()
    runs: int = 0
    files: tuple[str, ...] = ()
    series: str = ""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size at which two algorithms take equally long, by the model.

    Attributes:
        size_bytes: not a whole number as a rule.
        below: the algorithm that is faster for less.
        above: the one for more.
    """

    size_bytes: float
    below: str
    above: str


# ---------------------------------------------------------------------------------- a run by rounds


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk that a rank holds.

    Attributes:
        ranks: whose contribution is in it, in order, each as often as it is.
        values: its first numbers, as they were really there; empty on paper.
        complete: it holds what this chunk holds at the end, wherever that has to be.
    """

    chunk: int
    ranks: tuple[int, ...]
    values: tuple[Number | str, ...] = ()
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A round on one rank, in seconds after the first rank began the first round.

    From ``began_s`` to ``posted_s`` and from ``arrived_s`` to ``ended_s`` the rank works: it packs
    and posts its messages, and reduces or unpacks what came. In between it waits for them.
    """

    began_s: float
    posted_s: float
    arrived_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """A round, and what changed by it. ``TraceReport.states`` gives all that ranks hold.

    Attributes:
        number: from 1 on.
        phase: of the algorithm; empty: it has only one.
        transfers: what happens at the same time.
        arrived: chunks that are new or changed, by rank.
        gone: chunks that a rank has handed on and holds no more, by rank.
        moments: by rank; empty on paper. A rank without a message has no duration.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]
    arrived: tuple[tuple[Cell, ...], ...] = ()
    gone: tuple[tuple[int, ...], ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class WrongChunk:
    """A chunk that is not what it should be.

    Attributes:
        element: the first wrong one, counted in the chunk; None: the chunk is not there at all.
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
    """How it went on one rank: what it tells the launcher.

    Attributes:
        start: the first numbers of every chunk that it held before the first round.
        values: after each round the same of the chunks that arrived in it.
        moments: of each round, on this machine's monotonic clock.
        sent_bytes: that were handed to the backend to be sent.
        verification: of the result, as the op's own.
        wrong: chunks that are not what they should be.
    """

    rank: int
    start: dict[int, tuple[Number | str, ...]]
    values: tuple[dict[int, tuple[Number | str, ...]], ...]
    moments: tuple[Moment, ...]
    sent_bytes: int
    verification: Verification
    wrong: tuple[WrongChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """One run of one algorithm.

    Attributes:
        op: with n, dtype, shape, reduce op and root.
        algorithm: its name.
        chunks: number of chunks; None: its usual number.
        fault: what is done wrong on purpose.
    """

    op: OpSpec
    algorithm: str
    chunks: int | None = None
    fault: Fault | None = None

    @property
    def divides(self) -> bool:
        """Whether all that is held at the end is divided then."""
        return self.op.reduce_op == "avg" and self.op.group_size > 1


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round; or the same on paper, where there is no world.

    Attributes:
        traffic: of the op; its payload is the B of formulas.
        element_bytes: of one element.
        chunk_elements: of each chunk, by its number.
        chunk_names: how people call each chunk, by its number: ``2``, of all_to_all ``0→3``.
        wanted: the chunks that each rank must hold at the end.
        start: what all ranks hold before the first round; empty where the run failed.
        rounds: each with what changed by it.
        counts: of the schedule.
        sent_bytes: of each rank, counted.
        received_bytes: likewise.
        checks: formulas beside counts.
        handed_bytes: that each rank really handed to the backend to be sent; empty on paper.
        wrong: chunks that are not what they should be.
        verifications: of the results, one a rank that returned.
        world: how the ranks ended; None: on paper.
        versions: of what was run.
    """

    spec: TraceSpec
    algorithm: AlgorithmInfo
    traffic: Traffic
    element_bytes: int
    chunk_elements: tuple[int, ...]
    chunk_names: tuple[str, ...]
    wanted: tuple[tuple[int, ...], ...]
    start: tuple[tuple[Cell, ...], ...]
    rounds: tuple[PlayedRound, ...]
    counts: Counts
    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]
    checks: tuple[FormulaCheck, ...]
    handed_bytes: tuple[int, ...] = ()
    wrong: tuple[WrongChunk, ...] = ()
    verifications: tuple[Verification, ...] = ()
    world: WorldReport | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def ok(self) -> bool:
        """Whether all ranks returned, and what they returned is right."""
        if self.wrong or (self.world is not None and not self.world.ok):
            return False
        return all(each.ok for each in self.verifications)

    @property
    def n(self) -> int:
        """Ranks."""
        return self.spec.op.group_size

    @property
    def messages(self) -> int:
        """Number of messages that carry anything."""
        return sum(t.elements > 0 for each in self.rounds for t in each.transfers)

    def states(self) -> Iterator[tuple[dict[int, Cell], ...]]:
        """What each rank holds, by chunk: before the first round, and after each; new objects."""
        now = tuple({cell.chunk: cell for cell in cells} for cells in self.start)
        yield now
        for each in self.rounds:
            now = tuple(
                {chunk: cell for chunk, cell in held.items() if chunk not in gone}
                | {cell.chunk: cell for cell in arrived}
                for held, arrived, gone in zip(now, each.arrived, each.gone, strict=True)
            )
            yield now
