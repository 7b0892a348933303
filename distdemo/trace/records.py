"""Inputs and results of ``trace`` as frozen records; no torch, Rich or Typer.

Field names are the keys of the JSON documents. Rank numbers are those of the world.
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
"""Version of a chunk that is sent: the sender's current one, its initial one, or the one in the
last message that it received."""
FaultKind = Literal["drop", "neighbour", "twice"]
Origin = Literal["given", "measured", "fitted"]

# --------------------------------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message.

    Attributes:
        chunks: Chunks that it carries, in this order.
        elements: Total number of elements. A message with none isn't sent.
        reduce: True if the receiver combines it with what it holds; otherwise it replaces that.
        content: Version of the chunks that is sent.
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    elements: int
    reduce: bool = False
    content: Content = "held"


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault.

    Attributes:
        fault: ``drop`` omits a message, ``neighbour`` sends it to the rank after the right one,
            ``twice`` reduces it twice.
        round: Round of the message, starting at 1.
        src: Sender of the message.
    """

    fault: FaultKind
    round: int
    src: int


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """Description of an algorithm.

    Attributes:
        op: torch's name of the operation.
        summary: One sentence on how it works.
        source: Source of the algorithm and its formulas.
        formulas: Formulas for ``rounds``, ``sent``, ``busiest`` and ``total``, as text.
    """

    op: str
    name: str
    summary: str
    source: str
    formulas: dict[str, str]


@dataclass(frozen=True, slots=True)
class AlgorithmList:
    """Result of ``trace list``: the algorithms. The first one of each op is the default."""

    algorithms: tuple[AlgorithmInfo, ...]
    ok: bool = True


# -------------------------------------------------------------------------------------------- cost


@dataclass(frozen=True, slots=True)
class Counts:
    """Rounds and bytes of a schedule.

    Attributes:
        rounds: Number of rounds.
        sent_bytes: Bytes sent by the rank that sends most.
        busiest_bytes: Bytes sent and received by the busiest rank.
        total_bytes: Bytes sent by all ranks together.
        alpha_rounds: Rounds in which anything is sent. Each costs α once.
        beta_bytes: Bytes of each round's largest message, added up. Each costs β once.
    """

    rounds: int
    sent_bytes: int
    busiest_bytes: int
    total_bytes: int
    alpha_rounds: int
    beta_bytes: int


@dataclass(frozen=True, slots=True)
class FormulaCheck:
    """A formula compared with the count.

    Attributes:
        name: ``rounds``, ``sent_bytes``, ``busiest_bytes`` or ``total_bytes``.
        formula: Formula as text.
        value: Value of the formula, not necessarily an integer.
        counted: Number counted in the schedule.
        same: True if both are equal.
        exact: True if the formula is exact here: it assumes equal chunks.
    """

    name: str
    formula: str
    value: float
    counted: int
    same: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class CostModel:
    """Cost of a message in Hockney's model: a message of s bytes takes α + s·β.

    Attributes:
        alpha_s: α, in seconds.
        beta_s_per_byte: β, in seconds.
        origin: ``given`` by the user, ``measured`` in the same world, or ``fitted`` to files.
        message_bytes: Sizes of the timed messages.
        runs: Number of times that each of them was timed.
        files: Files that it was fitted to.
        series: Fitted series: ``all-reduce over gloo on 2 and 4 ranks, taken for ring``.
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
    """Size at which two algorithms take the same time, according to the model.

    Attributes:
        size_bytes: Size in bytes, usually not an integer.
        below: Algorithm that is faster below this size.
        above: Algorithm that is faster above it.
    """

    size_bytes: float
    below: str
    above: str


# ------------------------------------------------------------------------------------ traced rounds


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk that a rank holds.

    Attributes:
        ranks: Ranks that contributed to it, sorted, each repeated once per contribution.
        values: First numbers that the rank really held; empty on paper.
        complete: True if its contributions are those of the final result.
    """

    chunk: int
    ranks: tuple[int, ...]
    values: tuple[Number | str, ...] = ()
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """Times of a round on one rank, in seconds since the first rank began the first round.

    From ``began_s`` to ``posted_s`` the rank packs and posts its messages, then it waits for them.
    From ``arrived_s`` to ``ended_s`` it reduces or unpacks them.
    """

    began_s: float
    posted_s: float
    arrived_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """A round and its changes. ``TraceReport.states`` returns the complete state of all ranks.

    Attributes:
        number: Number of the round, starting at 1.
        phase: Phase of the algorithm; empty if it has only one.
        transfers: Messages that are sent at the same time.
        arrived: Chunks that are new or changed, by rank.
        gone: Chunks that a rank has passed on and no longer holds, by rank.
        moments: Times by rank; empty on paper. A rank without a message has no duration.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]
    arrived: tuple[tuple[Cell, ...], ...] = ()
    gone: tuple[tuple[int, ...], ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class WrongChunk:
    """A chunk with a wrong result.

    Attributes:
        element: Index of the first wrong element in the chunk; None if the chunk is missing.
        got: Actual number.
        expected: Correct number.
        missing: Ranks whose contribution is missing.
        extra: Ranks whose contribution is in it more than once, or shouldn't be in it.
        round: Round after which this rank's chunk first differed from the correct schedule; None
            if unknown.
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
    """Trace of one rank, as it reports it to the launcher.

    Attributes:
        start: First numbers of each chunk that it held before the first round.
        values: First numbers of the chunks that arrived in each round.
        moments: Times of each round, on this machine's monotonic clock.
        sent_bytes: Bytes handed to the backend for sending.
        verification: Verification of the result, the same as for the op itself.
        wrong: Chunks with a wrong result.
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
        op: Op with its number of ranks, dtype, shape, reduce op and root.
        algorithm: Name of the algorithm.
        chunks: Number of chunks; None for the algorithm's default.
        fault: Injected fault, or None.
    """

    op: OpSpec
    algorithm: str
    chunks: int | None = None
    fault: Fault | None = None

    @property
    def divides(self) -> bool:
        """Return True if the result is divided after the last round."""
        return self.op.reduce_op == "avg" and self.op.group_size > 1


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round, or the same on paper, without a world.

    Attributes:
        traffic: Traffic of the op. Its payload is the B of the formulas.
        element_bytes: Bytes per element.
        chunk_elements: Elements of each chunk, by chunk number.
        chunk_names: Name of each chunk, by chunk number: ``2``, or ``0→3`` for all_to_all.
        wanted: Chunks that each rank must hold at the end.
        start: Chunks that each rank holds before the first round; empty if the run failed.
        rounds: Rounds with their changes.
        counts: Counts of the schedule.
        sent_bytes: Bytes that each rank sends, counted in the schedule.
        received_bytes: Bytes that each rank receives, counted in the schedule.
        checks: Formulas compared with the counts.
        handed_bytes: Bytes that each rank really handed to the backend; empty on paper.
        wrong: Chunks with a wrong result.
        verifications: Verification of each rank that returned.
        world: Outcome of the ranks; None on paper.
        versions: Versions of the software.
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
        """True if all ranks returned and their results are right."""
        if self.wrong or (self.world is not None and not self.world.ok):
            return False
        return all(each.ok for each in self.verifications)

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.spec.op.group_size

    @property
    def messages(self) -> int:
        """Number of non-empty messages."""
        return sum(t.elements > 0 for each in self.rounds for t in each.transfers)

    def states(self) -> Iterator[tuple[dict[int, Cell], ...]]:
        """Yield each rank's cells by chunk, before the first round and after each; new objects."""
        now = tuple({cell.chunk: cell for cell in cells} for cells in self.start)
        yield now
        for each in self.rounds:
            now = tuple(
                {chunk: cell for chunk, cell in held.items() if chunk not in gone}
                | {cell.chunk: cell for cell in arrived}
                for held, arrived, gone in zip(now, each.arrived, each.gone, strict=True)
            )
            yield now
