"""Inputs and results of ``trace`` as frozen records; no torch, Rich or Typer.

Field names are the keys of the JSON documents. Rank numbers are those of the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Call, Number, OpSpec, Verification
from distdemo.schedules.count import AlgorithmInfo, CostModel, Counts, Crossover, FormulaCheck
from distdemo.schedules.schedule import Transfer

# --------------------------------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True)
class AlgorithmCost:
    """Cost of one algorithm at one size, by its formulas.

    Attributes:
        op: torch's name of the operation.
        size_bytes: S: bytes of one rank's tensor, or of all n parts.
        predicted_s: Seconds predicted by the α–β model; None without a fit.
    """

    op: str
    algorithm: str
    size_bytes: int
    counts: Counts
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class AlgorithmList:
    """Result of ``trace list``: the algorithms. The first one of each op is the default.

    Attributes:
        world_size: Number of ranks of the costs; None without costs.
        costs: Costs by op, size and algorithm.
        links: α and β of the predictions, by op.
        crossovers: Sizes at which the model's fastest algorithm changes, by op.
    """

    algorithms: tuple[AlgorithmInfo, ...]
    world_size: int | None = None
    costs: tuple[AlgorithmCost, ...] = ()
    links: dict[str, CostModel] = field(default_factory=dict)
    crossovers: dict[str, tuple[Crossover, ...]] = field(default_factory=dict)
    ok: ClassVar[bool] = True


# ------------------------------------------------------------------------------------ traced rounds


@dataclass(frozen=True, slots=True)
class HeldChunk:
    """A chunk that a rank holds.

    Attributes:
        ranks: Ranks that contributed to it, sorted, each repeated once per contribution.
        values: First numbers that the rank really held.
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

    def since(self, start_s: float) -> Moment:
        """Return the same times relative to this one."""
        times = (self.began_s, self.posted_s, self.arrived_s, self.ended_s)
        return Moment(*(time_s - start_s for time_s in times))


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """A round and its changes. ``TraceReport.states`` returns the complete state of all ranks.

    Attributes:
        number: Number of the round, starting at 1.
        phase: Phase of the algorithm; empty if it has only one.
        transfers: Messages that are sent at the same time.
        arrived: Chunks that are new or changed, by rank.
        gone: Chunks that a rank has passed on and no longer holds, by rank.
        moments: Times by rank. A rank without a message has no duration.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]
    arrived: tuple[tuple[HeldChunk, ...], ...] = ()
    gone: tuple[tuple[int, ...], ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class WrongChunk:
    """A chunk with a wrong result.

    Attributes:
        element: Index of the first wrong element in the chunk; None if the chunk is missing.
        got: Actual number.
        expected: Correct number.
    """

    rank: int
    chunk: int
    element: int | None
    got: Number | str | None
    expected: Number | str


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
        op: Call with its number of ranks and its data.
        algorithm: Name of the algorithm.
        chunks: Number of chunks; None for the algorithm's default.
    """

    op: OpSpec
    algorithm: str
    chunks: int | None = None

    @property
    def divides(self) -> bool:
        """True if the result is divided after the last round."""
        return self.op.reduce_op == "avg" and self.op.group_size > 1


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round.

    Attributes:
        traffic: Traffic of the op. Its payload is the S of the formulas.
        spec: Run of every rank.
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
        handed_bytes: Bytes that each rank really handed to the backend; empty if the run failed.
        wrong: Chunks with a wrong result.
        verifications: Verification of each rank that returned.
        world: Outcome of the ranks.
        versions: Versions of the software.
    """

    op: Call
    algorithm: AlgorithmInfo
    traffic: Traffic
    spec: TraceSpec = field(metadata={"json": False})
    element_bytes: int
    chunk_elements: tuple[int, ...]
    chunk_names: tuple[str, ...]
    wanted: tuple[tuple[int, ...], ...]
    start: tuple[tuple[HeldChunk, ...], ...]
    rounds: tuple[PlayedRound, ...]
    counts: Counts
    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]
    checks: tuple[FormulaCheck, ...]
    world: WorldReport
    handed_bytes: tuple[int, ...] = ()
    wrong: tuple[WrongChunk, ...] = ()
    verifications: tuple[Verification, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if all ranks returned and their results are right."""
        right = not self.wrong and all(verification.ok for verification in self.verifications)
        return self.world.ok and right

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.spec.op.group_size

    @property
    def messages(self) -> int:
        """Number of non-empty messages."""
        return sum(t.elements > 0 for played in self.rounds for t in played.transfers)

    def states(self) -> Iterator[tuple[dict[int, HeldChunk], ...]]:
        """Yield each rank's cells by chunk, before the first round and after each; new objects."""
        now = tuple({cell.chunk: cell for cell in cells} for cells in self.start)
        yield now
        for played in self.rounds:
            now = tuple(
                {chunk: cell for chunk, cell in held.items() if chunk not in gone}
                | {cell.chunk: cell for cell in arrived}
                for held, arrived, gone in zip(now, played.arrived, played.gone, strict=True)
            )
            yield now
