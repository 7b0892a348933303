"""Results of ``trace`` as frozen records; no torch, Rich or Typer.

Field names are the keys of the JSON documents. Rank numbers are those of the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Call, Number, Verification
from distdemo.schedules.schedule import Counts, Exchange

Numbers = tuple[Number | str, ...]
"""First numbers of a chunk; an invalid bool is a text."""

# --------------------------------------------------------------------------------- the algorithms


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
class AlgorithmCost:
    """Cost of one algorithm at one size, by its formulas.

    Attributes:
        op: torch's name of the operation.
        size_bytes: S: bytes of one rank's tensor, or of all n parts.
    """

    op: str
    algorithm: str
    size_bytes: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class AlgorithmList:
    """Result of ``trace list``: the algorithms. The first one of each op is the default.

    Attributes:
        world_size: Number of ranks of the costs; None without costs.
        costs: Costs by op, size and algorithm.
    """

    algorithms: tuple[AlgorithmInfo, ...]
    world_size: int | None = None
    costs: tuple[AlgorithmCost, ...] = ()
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
    values: Numbers = ()
    complete: bool = False


@dataclass(frozen=True, slots=True)
class PlayedRound(Exchange):
    """A round and its changes. ``TraceReport.states`` returns the complete state of all ranks.

    Attributes:
        arrived: Chunks that are new or changed, by rank.
        gone: Chunks that a rank has passed on and no longer holds, by rank.
    """

    arrived: tuple[tuple[HeldChunk, ...], ...] = ()
    gone: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RankTrace:
    """Trace of one rank, as it reports it to the launcher.

    Attributes:
        start: First numbers of each chunk that it held before the first round.
        values: First numbers of the chunks that arrived in each round.
        verification: Verification of the result, the same as for the op itself.
    """

    start: dict[int, Numbers]
    values: tuple[dict[int, Numbers], ...]
    verification: Verification


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round.

    Attributes:
        traffic: Traffic of the op. Its payload is the S of the formulas.
        chunk_elements: Elements of each chunk, by chunk number.
        chunk_names: Name of each chunk, by chunk number: ``2``, or ``0→3`` for all_to_all.
        wanted: Chunks that each rank must hold at the end.
        start: Chunks that each rank holds before the first round; empty if the run failed.
        rounds: Rounds with their changes.
        counts: Rounds and bytes counted in the schedule.
        by_formula: The same by the algorithm's formulas, which assume equal chunks.
        verifications: Verification of each rank that returned.
        world: Outcome of the ranks.
        versions: Versions of the software.
    """

    op: Call
    algorithm: AlgorithmInfo
    traffic: Traffic
    chunk_elements: tuple[int, ...]
    chunk_names: tuple[str, ...]
    wanted: tuple[tuple[int, ...], ...]
    start: tuple[tuple[HeldChunk, ...], ...]
    rounds: tuple[PlayedRound, ...]
    counts: Counts
    by_formula: Counts
    world: WorldReport
    verifications: tuple[Verification, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if all ranks returned and their results are right."""
        return self.world.ok and not self.wrong_ranks

    @property
    def wrong_ranks(self) -> frozenset[int]:
        """Ranks with a wrong result."""
        checks = enumerate(self.verifications)
        return frozenset(rank for rank, verification in checks if not verification.ok)

    @property
    def n(self) -> int:
        """Number of ranks."""
        return len(self.wanted)

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
