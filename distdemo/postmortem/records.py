"""Record of a post-mortem. No torch, no Rich."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.calls.records import CallCount, Finding


@dataclass(frozen=True, slots=True)
class Postmortem:
    """Summary of the files that a job's ranks left behind, and the verdict.

    Attributes:
        source: Folder or files that were read.
        world_size: Number of ranks; 0 if unknown.
        files: Number of files by format, ``7 dumps``.
        backends: Backends with the version of their library, or hosts of recordings.
        absent: Ranks that left nothing.
        notes: What was inferred, what is missing or contradicting, and which files were skipped.
        calls: Calls with their counts.
        findings: Findings, the most important first.
        warnings: Possible errors.
        strict: True if warnings count as errors.
        stopped: Reason why errors may have been missed, or empty.
    """

    source: str
    world_size: int
    files: tuple[str, ...]
    backends: tuple[str, ...]
    absent: tuple[int, ...]
    notes: tuple[str, ...]
    calls: tuple[CallCount, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    strict: bool = False
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """True if everything was compared and nothing is wrong."""
        return not (self.findings or self.stopped or (self.strict and self.warnings))
