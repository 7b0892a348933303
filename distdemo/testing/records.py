"""Options of a marked test, and what pytest's process and the template send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distdemo.calls.records import CallCount, Finding
    from distdemo.launcher.records import WorldReport


@dataclass(frozen=True)
class RanksOptions:
    """Arguments of the mark.

    Attributes:
        sizes: Numbers of ranks, one test each.
        timeout: Seconds until the test is stopped on all ranks.
        sanitize: True to compare the ranks' calls.
        backend: Backend of the default group.
        device: ``cpu`` or ``cuda``.
    """

    sizes: tuple[int, ...]
    timeout: float = 30.0
    sanitize: bool = True
    backend: str = "gloo"
    device: str = "cpu"


@dataclass(frozen=True)
class SessionSetup:
    """Parts of pytest's session that the template repeats.

    Attributes:
        options: Values of pytest's options.
        args: Files and folders to test.
        installed: Modules of the installed plugins.
        markers: Lines that register marks.
        worker: Input of the pytest-xdist worker that pytest's process is, or None.
        coverage: Arguments of ``coverage.Coverage`` on a rank, or None.
    """

    options: Mapping[str, Any]
    args: tuple[str, ...]
    installed: frozenset[str]
    markers: tuple[str, ...]
    worker: Mapping[str, Any] | None
    coverage: Mapping[str, Any] | None


@dataclass(frozen=True)
class Task:
    """A test to run.

    Attributes:
        nodeid: pytest's node ID.
        file: File that contains the test.
        path: Value of ``sys.path``.
        options: Arguments of its mark.
        size: Number of ranks.
        seed: Seed of the ranks' random numbers.
        basetemp: Folder for temporary folders.
        pdb: True if the first rank that fails gets the terminal.
        capture: True to capture the ranks' output for the report.
    """

    nodeid: str
    file: str
    path: tuple[str, ...]
    options: RanksOptions
    size: int
    seed: int
    basetemp: Path
    pdb: bool
    capture: bool


@dataclass(frozen=True)
class TaskResult:
    """Result of a test.

    Attributes:
        world: Outcomes of the ranks.
        findings: Findings of the sanitizer.
        reports: Each rank's pytest reports in serialized form.
        warnings: Warnings that pytest recorded on ranks, as arguments of its hook.
        examples: Description of the first hypothesis example that differed between ranks, or empty.
        refused: Reason why the test could not be run, or empty.
        calls: Recorded calls of all ranks, with their counts.
        unavailable: Reason why this machine doesn't have the test's backend, or empty.
    """

    world: WorldReport | None
    findings: tuple[Finding, ...]
    reports: dict[int, list[dict[str, Any]]]
    warnings: tuple[tuple[Any, ...], ...] = ()
    examples: str = ""
    refused: str = ""
    calls: tuple[CallCount, ...] = ()
    unavailable: str = ""
