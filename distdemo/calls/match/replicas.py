"""Compare the training steps and replicas of the ranks: pure logic over their notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from distdemo.calls.match.rules import KINDS, ranks_by_value
from distdemo.calls.notes import ReplicaNote
from distdemo.calls.records import Finding, Kind, RankCall, Row, SourceLine
from distdemo.launcher.verdict import ranks_of

MAX_OPEN = 100_000  # remembered tensors per group that some rank hasn't checked
Sums = dict[int, int]
"""Checksum of one tensor, by rank."""


@dataclass(slots=True)
class ReplicaCheck:
    """Comparison of the tensors that the members of a group hold.

    Ranks check DDP's parameters at the same position in the sequence of the group's calls. A rank
    that has finished early in DDP's ``join()`` doesn't check, so nothing is compared there.
    """

    _open: dict[tuple[bool, int, str], Sums] = field(default_factory=dict)

    def compare(
        self, rank: int, note: ReplicaNote, position: int, size: int
    ) -> tuple[str, Sums] | None:
        """Return the first tensor that differs, and its checksums, once all ranks have checked it.

        Args:
            rank: Rank of the note.
            note: Checksums of this rank.
            position: Number of calls that the rank has made on the group.
            size: Number of members of the group.
        """
        drifted = None
        for name, value in zip(note.checksums.names, note.checksums.sums, strict=True):
            key = (note.check > 0, note.check or position, name)
            sums = self._open.setdefault(key, {})
            sums[rank] = value
            if len(sums) == size:
                del self._open[key]
                if drifted is None and len(set(sums.values())) > 1:
                    drifted = name, sums
            elif len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        return drifted


def drift_finding(note: ReplicaNote, name: str, sums: Sums, line: str) -> Finding:
    """Return the finding for a tensor that differs.

    Args:
        note: Note of one rank.
        name: Name of the tensor.
        sums: Checksum of each rank.
        line: Source line of the step or check.
    """
    when = f"after step {note.step}" if note.step else "after DDP's first broadcast"
    when = f"in check {note.check}" if note.check else when
    groups = ranks_by_value(sums)
    rows = [Row(r, f"{name} {when}: checksum {sums[r[0]]:08x}", line) for r in groups]
    return _divided("replicas", rows, f": {name} differs from", f" {when}.")


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
            self._start = steps
        start = self._start
        since = {rank: step - start.get(rank, 0) for rank, step in steps.items()}
        if len(set(since.values())) == 1:
            return None
        self._start = steps  # report it once
        return since


def shifted_finding(
    since: dict[int, int],
    steps: Mapping[int, int],
    calls: Mapping[int, RankCall],
    line: Callable[[SourceLine], str],
) -> Finding:
    """Return the finding for gradients of different steps.

    Args:
        since: Result of `StepCheck.compare`.
        steps: Its argument.
        calls: Call of each rank.
        line: Function that returns a source line as text.
    """
    rows = []
    for ranks in ranks_by_value(since):
        call = calls[ranks[0]]
        rows.append(Row(ranks, f"{call.op} in step {steps[ranks[0]]}", line(call.source_line)))
    return _divided("step", rows, " averaged the gradients of another step than")


def _divided(kind: Kind, rows: list[Row], differ: str, end: str = ".") -> Finding:
    """Return a finding: the ranks of the first row are right, and all others at fault."""
    guilty = tuple(sorted(rank for row in rows[1:] for rank in row.ranks))
    what = f"{ranks_of(guilty)}{differ} {ranks_of(rows[0].ranks).lower()}{end}"
    return Finding(kind, what, tuple(rows), "", KINDS[kind].rule, guilty)
