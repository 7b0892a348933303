"""What the views are drawn from: tables, JSON and JUnit are views of one of these. Frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.model import Holding, OpSpec, RankRecord, Traffic, Words
from distdemo.outcomes import WorldReport


@dataclass(frozen=True, slots=True)
class OpReport:
    """An op that ran (or a world that failed while running it): what every view is drawn from."""

    spec: OpSpec
    world: WorldReport
    traffic: Traffic
    ranks: tuple[RankRecord, ...]
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank returned and every defined element was right."""
        return self.world.ok and all(record.verification.ok for record in self.ranks)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What one rank of ``hello`` says of itself."""

    rank: int
    world_size: int
    pid: int
    host: str
    backend: str
    device: str
    startup_seconds: float
    heard_from: int


@dataclass(frozen=True, slots=True)
class HelloReport:
    """Every rank's introduction."""

    world: WorldReport
    ranks: tuple[Introduction, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank came, and heard from all the others."""
        size = self.world.world.world_size
        return self.world.ok and all(each.heard_from == size for each in self.ranks)


@dataclass(frozen=True, slots=True)
class Explanation:
    """An op drawn without running it: what every rank holds before and after, and who gives.

    Attributes:
        ranks: those that are shown; ``before`` and ``after`` are theirs.
        edges: (from, to) for whatever moves between two of them.
    """

    spec: OpSpec
    words: Words
    ranks: tuple[int, ...]
    before: tuple[Holding, ...]
    after: tuple[Holding, ...]
    edges: frozenset[tuple[int, int]]
    traffic: Traffic
    notes: tuple[str, ...] = ()
