"""Records of ``run``: its program and its report. Frozen; no torch, no rich, no typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distdemo.calls.records import (
    CallCount,
    Finding,
    Gap,
    Kind,
    LateRank,
    LedgerReport,
    Level,
)
from distdemo.launcher.program import Program
from distdemo.launcher.records import WorldReport


@dataclass(frozen=True, slots=True)
class RankOutput:
    """Output and return value of one rank.

    Attributes:
        output: Output to stdout and stderr. Long output is shortened in the middle, with a line
            that says so. Empty if the rank wrote directly to the terminal.
        left_out_bytes: Number of bytes left out in the middle.
        returned: Return value as JSON: tensors as nested lists, other types as their ``repr``; null
            for None, a rank that did not finish, and a whole program.
        text: ``repr`` of the return value; empty for None.
    """

    rank: int
    output: str = ""
    left_out_bytes: int = 0
    returned: Any = None
    text: str = field(default="", metadata={"json": False})


@dataclass(frozen=True, slots=True)
class RunReport:
    """Report on a user's program.

    Attributes:
        world: Report on the world; None if it was interrupted too early.
        ranks: Output of each rank, in order; with ``--ranks``, of these ranks only.
        calls: Calls of the ranks, with counts.
        late: Ranks that others waited for, longest total first; with ``--calls``.
        findings: Findings of the sanitizer, one at most.
        warnings: Possible problems.
        notes: Remarks, which are no failures even with ``--strict``.
        strict: True if warnings, and comparisons that are incomplete, are failures.
        levels: Levels of findings that the user has chosen, by kind.
        stopped: Reason why the comparison of calls stopped early; empty if it did not.
        gaps: What ranks couldn't look at.
        shake: Seed of the random delays before calls; null if there were none.
        replicas: What was compared of the tensors that ranks train; null without
            ``--check-replicas`` and ``--except``.
        rpc: True if the program used RPC: what it calls through RPC isn't compared.
    """

    program: Program
    world_size: int
    world: WorldReport | None = None
    ranks: tuple[RankOutput, ...] = ()
    calls: tuple[CallCount, ...] = ()
    late: tuple[LateRank, ...] = ()
    findings: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    strict: bool = False
    levels: dict[Kind, Level] = field(default_factory=dict)
    stopped: str = ""
    gaps: tuple[Gap, ...] = ()
    shake: int | None = None
    replicas: LedgerReport | None = None
    rpc: bool = False
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """True if a signal ended the run."""
        return self.world is None or self.world.interrupted_by is not None

    @property
    def ok(self) -> bool:
        """True if every rank finished and nothing that ``--strict`` rejects happened."""
        well = self.world is not None and self.world.ok
        return well and not (self.strict and (self.warnings or not self.complete))

    @property
    def complete(self) -> bool:
        """True if everything that was asked was looked at, to the end."""
        is_seen = not (self.stopped or any(gap.is_asked for gap in self.gaps))
        return is_seen and (self.replicas is None or self.replicas.complete)
