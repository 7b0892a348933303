"""What ``doctor`` found: a finding a check, and the report. Frozen; no torch, rich or typer."""

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
"""Every topic and its heading, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        level: ``fine``; ``warning``, it costs time or stands in the way of some worlds;
            ``broken``, worlds that people commonly start fail by it; ``skipped``, there was
            nothing to look at.
        seen: what was found, without a full stop.
        why: why it matters, in sentences; empty where it is fine.
        do: what to do about it, likewise.
        facts: names and values, for programs that read the report.
        check: names the check, ``hostname``; several findings may come from one.
        topic: one of ``TOPICS``.
        title: the same for people, ``Hostname``.
    """

    level: Level
    seen: str
    why: str = ""
    do: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    check: str = ""
    topic: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings, in the order of ``TOPICS``.

    Attributes:
        host: the name of this machine.
    """

    findings: tuple[Finding, ...]
    host: str
    elapsed_s: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def count(self, level: Level) -> int:
        """How many findings are of this level."""
        return sum(finding.level == level for finding in self.findings)

    @derived
    def counts(self) -> dict[str, int]:
        """Findings by level."""
        levels: tuple[Level, ...] = ("broken", "warning", "fine", "skipped")
        return {level: self.count(level) for level in levels}

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.count("broken")


def fine(seen: str, /, **facts: object) -> Finding:
    """Nothing stands in the way."""
    return Finding("fine", seen, facts=_texts(facts))


def warning(seen: str, why: str, do: str, /, **facts: object) -> Finding:
    """It costs time, or stands in the way of some worlds."""
    return Finding("warning", seen, why, do, _texts(facts))


def broken(seen: str, why: str, do: str, /, **facts: object) -> Finding:
    """Worlds that people commonly start fail by it."""
    return Finding("broken", seen, why, do, _texts(facts))


def bad(seen: str, why: str, do: str, *, is_broken: bool) -> Finding:
    """Broken, or only a warning."""
    return Finding("broken" if is_broken else "warning", seen, why, do)


def skipped(seen: str, do: str = "") -> Finding:
    """There is nothing to look at."""
    return Finding("skipped", seen, do=do)


def _texts(facts: dict[str, object]) -> dict[str, str]:
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in facts.items()
    }
