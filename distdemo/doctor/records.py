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
class Finding:
    """A finding of one check.

    Attributes:
        level: ``fine``; ``warning`` if worlds are slow or some fail; ``broken`` if common worlds
            fail; ``skipped`` if there was nothing to check.
        what: Observation, without a full stop.
        why: Explanation in sentences; empty if the level is fine.
        hint: Suggested fix; empty if the level is fine.
        facts: Names and values for programs that read the report.
        check: Name of the check, such as ``hostname``. A check may have several findings.
        topic: Key of ``TOPICS``.
        title: Display name of the check, such as ``Hostname``.
    """

    level: Level
    what: str
    why: str = ""
    hint: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    check: str = ""
    topic: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Report with all findings, in the order of ``TOPICS``.

    Attributes:
        host: Name of this machine.
    """

    findings: tuple[Finding, ...]
    host: str
    elapsed_s: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def count(self, level: Level) -> int:
        """Return the number of findings with this level."""
        return sum(finding.level == level for finding in self.findings)

    @derived
    def counts(self) -> dict[str, int]:
        """Number of findings by level."""
        levels: tuple[Level, ...] = ("broken", "warning", "fine", "skipped")
        return {level: self.count(level) for level in levels}

    @property
    def ok(self) -> bool:
        """True if nothing is broken."""
        return not self.count("broken")


def fine(what: str, /, **facts: object) -> Finding:
    """Return a finding without a problem."""
    return Finding("fine", what, facts=_texts(facts))


def warning(what: str, why: str, hint: str, /, **facts: object) -> Finding:
    """Return a finding that slows worlds down or makes some fail."""
    return Finding("warning", what, why, hint, _texts(facts))


def broken(what: str, why: str, hint: str, /, **facts: object) -> Finding:
    """Return a finding that makes common worlds fail."""
    return Finding("broken", what, why, hint, _texts(facts))


def bad(what: str, why: str, hint: str, *, is_broken: bool) -> Finding:
    """Return a broken finding or a warning."""
    return Finding("broken" if is_broken else "warning", what, why, hint)


def skipped(what: str, hint: str = "") -> Finding:
    """Return a finding of a check that doesn't apply."""
    return Finding("skipped", what, hint=hint)


def _texts(facts: dict[str, object]) -> dict[str, str]:
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in facts.items()
    }
