"""What ``doctor`` found: a finding a check, and the report that every view is drawn from. Frozen.

No torch, no rich, no typer, as in ``reports``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Level = Literal["fine", "warning", "broken", "skipped"]

TOPICS = {
    "network": "Network",
    "memory": "Memory and limits",
    "processors": "Processors and clock",
    "torch": "Torch and backends",
    "mpi": "MPI",
    "gpus": "GPUs",
    "environment": "Environment",
    "peer": "The way to the peer",
}
"""Every topic and its heading, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: names the check, ``hostname``; several findings may come from one.
        topic: one of ``TOPICS``.
        title: the same for people, ``Hostname``.
        level: ``fine``; ``warning``, it costs time or stands in the way of some worlds;
            ``broken``, worlds that people commonly start fail by it; ``skipped``, there was
            nothing to look at.
        seen: what was found, without a full stop.
        why: why it matters, in sentences; empty where it is fine.
        do: what to do about it, likewise.
        facts: names and values, for programs that read the report.
    """

    check: str
    topic: str
    title: str
    level: Level
    seen: str
    why: str = ""
    do: str = ""
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings.

    Attributes:
        findings: in the order of ``TOPICS``.
        host: the name of this machine.
        seconds: how long looking took.
    """

    findings: tuple[Finding, ...]
    host: str
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def count(self, level: Level) -> int:
        """How many findings are of this level."""
        return sum(finding.level == level for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.count("broken")


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection that ``doctor --listen`` served.

    Attributes:
        address: whose it was, as this machine saw it.
        host: what the visitor called itself; empty if it never said so.
        seconds: how long it stayed.
        received: bytes of its throughput test.
        sent: likewise, to it.
        end: ``done``, or why it ended before.
    """

    address: str
    host: str
    seconds: float
    received: int
    sent: int
    end: str


@dataclass(frozen=True, slots=True)
class ListenReport:
    """What ``doctor --listen`` did.

    Attributes:
        address: that it listened on.
        port: likewise.
        reason: why that address.
        seconds: how long.
        interrupted: Ctrl-C ended it.
    """

    address: str
    port: int
    reason: str
    seconds: float
    visits: tuple[Visit, ...]
    versions: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
