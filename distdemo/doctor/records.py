"""Results of ``doctor``: findings and the report. Doesn't import torch, rich or typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distdemo.encoding import derived

Level = Literal["fine", "warning", "broken", "skipped"]

TOPICS = {
    "network": "Network",
    "memory": "Memory and limits",
    "torch": "Torch and backends",
    "mpi": "MPI",
    "gpus": "GPUs",
    "environment": "Environment",
}
"""Every topic and its heading, in display order."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding of one check.

    Attributes:
        level: ``fine``; ``warning`` if some worlds fail; ``broken`` if common worlds fail;
            ``skipped`` if there was nothing to check.
        what: Observation, without a full stop.
        why: Explanation in sentences; empty if the level is fine.
        hint: Suggested fix; empty if the level is fine.
        check: Name of the check, such as ``hostname``. A check may have several findings.
        topic: Key of ``TOPICS``.
    """

    level: Level
    what: str
    why: str = ""
    hint: str = ""
    check: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Report with all findings, in the order of ``TOPICS``.

    Attributes:
        host: Name of this machine.
    """

    findings: tuple[Diagnosis, ...]
    host: str
    elapsed_s: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def counts(self) -> dict[str, int]:
        """Number of findings by level."""
        counts = dict.fromkeys(("broken", "warning", "fine", "skipped"), 0)
        for finding in self.findings:
            counts[finding.level] += 1
        return counts

    @property
    def ok(self) -> bool:
        """True if nothing is broken."""
        return not self.counts["broken"]


def fine(what: str) -> Diagnosis:
    """Return a finding without a problem."""
    return Diagnosis("fine", what)


def warning(what: str, why: str, hint: str) -> Diagnosis:
    """Return a finding that makes some worlds fail."""
    return Diagnosis("warning", what, why, hint)


def broken(what: str, why: str, hint: str) -> Diagnosis:
    """Return a finding that makes common worlds fail."""
    return Diagnosis("broken", what, why, hint)


def skipped(what: str, hint: str = "") -> Diagnosis:
    """Return a finding of a check that doesn't apply."""
    return Diagnosis("skipped", what, hint=hint)
