"""Compare the training steps of the ranks: pure logic over their notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.records import Call, Finding, Row, SourceLine
from distdemo.sanitizer.rules import KINDS, majority


@dataclass(slots=True)
class StepCheck:
    """Comparison of the training steps of a group's members.

    Ranks that have finished early in DDP's ``join()`` take part in the calls without a step. Their
    steps are counted from there again.
    """

    _start: Mapping[int, int] | None = field(default_factory=dict)

    def compare(self, steps: Mapping[int, int]) -> dict[int, int] | None:
        """Return the steps since the start, by rank, if the calls are of different steps.

        Args:
            steps: Steps before one call, by rank; -1 for a rank that made it without a step.
        """
        if min(steps.values()) < 0:
            self._start = None
            return None
        if self._start is None:
            self._start = dict(steps)
        start = self._start
        found = {rank: step - start.get(rank, 0) for rank, step in steps.items()}
        if len(set(found.values())) == 1:
            return None
        self._start = dict(steps)  # report it once
        return found


def shifted_finding(
    shifted: dict[int, int],
    steps: Mapping[int, int],
    calls: Mapping[int, Call],
    line: Callable[[SourceLine], str],
) -> Finding:
    """Return the finding for gradients of different steps.

    Args:
        shifted: Result of `StepCheck.compare`.
        steps: Its argument.
        calls: Call of each rank.
        line: Function that returns a source line as text.
    """
    usual = majority(dict(shifted))
    rows = []
    for step in sorted(set(shifted.values()), key=lambda each: each != usual):
        ranks = tuple(sorted(rank for rank in shifted if shifted[rank] == step))
        call = calls[ranks[0]]
        rows.append(Row(ranks, f"{call.op} in step {steps[ranks[0]]}", line(call.source_line)))
    guilty = tuple(sorted(rank for rank in shifted if shifted[rank] != usual))
    what = (
        f"{ranks_of(guilty)} averaged the gradients of another step than "
        f"{ranks_of(rows[0].ranks).lower()}."
    )
    return Finding("step", what, tuple(rows), "", KINDS["step"].rule, guilty)
