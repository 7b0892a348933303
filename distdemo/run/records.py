"""Records of ``run``: its program and its report. Frozen; no torch, no rich, no typer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distdemo.calls.records import CallCount, Finding, LateRank
from distdemo.launcher.program import Program
from distdemo.launcher.records import Returned, WorldReport
from distdemo.versions import versions


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of one rank.

    Attributes:
        text: ``repr`` of the return value; empty for None.
        value: Return value as JSON: tensors as nested lists, other types as their ``repr``.
        has_group: True if the rank had a process group.
    """

    text: str = ""
    value: Any = None
    has_group: bool = True


@dataclass(frozen=True, slots=True)
class RankOutput:
    """Output and return value of one rank.

    Attributes:
        output: Output to stdout and stderr. Long output is shortened in the middle, with a line
            that says so. Empty if the rank wrote directly to the terminal.
        left_out_bytes: Number of bytes left out in the middle.
        returned: Return value; null for None, a rank that did not finish, and a whole program.
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
        has_group: True if some rank had a process group.
        calls: Calls of the ranks, with counts.
        late: Ranks that others waited for, longest total first; with ``--calls``.
        findings: Findings of the sanitizer, one at most.
        warnings: Possible problems.
        strict: True if warnings, and calls that were not compared, are failures.
        stopped: Reason why the comparison of calls stopped early; empty if it did not.
        shake: Seed of the random delays before calls; null if there were none.
        no_replicas: True if ``--check-replicas`` found nothing to compare.
    """

    program: Program
    world_size: int
    world: WorldReport | None = None
    ranks: tuple[RankOutput, ...] = ()
    has_group: bool = True
    calls: tuple[CallCount, ...] = ()
    late: tuple[LateRank, ...] = ()
    findings: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    strict: bool = False
    stopped: str = ""
    shake: int | None = None
    no_replicas: bool = False
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """True if a signal ended the run."""
        return self.world is None or self.world.interrupted_by is not None

    @property
    def ok(self) -> bool:
        """True if every rank finished and nothing that ``--strict`` rejects happened."""
        well = self.world is not None and self.world.ok
        return well and not (self.strict and (self.warnings or self.stopped))


def shaken_text(seed: int) -> str:
    """Return the text on random delays, with their seed."""
    return f"Calls were delayed at random: --shake {seed}."


def with_output(report: RunReport, texts: Sequence[tuple[str, int]]) -> RunReport:
    """Return the report with each rank's output and return value.

    Args:
        report: Report of the world.
        texts: Output of each rank, and the number of bytes left out of it.
    """
    outcomes = () if report.world is None else report.world.outcomes
    finished = {  # a rank that exited has no value
        outcome.rank: outcome.value or Finished()
        for outcome in outcomes
        if isinstance(outcome, Returned)
    }
    ranks = []
    for rank, (text, left_out) in enumerate(texts):
        end = finished.get(rank, Finished())
        ranks.append(RankOutput(rank, text, left_out, end.value, end.text))
    return replace(
        report,
        ranks=tuple(ranks),
        has_group=not finished or any(end.has_group for end in finished.values()),
        versions=versions(),
    )
