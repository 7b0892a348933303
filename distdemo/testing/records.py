"""Options of a marked test, and messages between pytest's process and the host."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        sizes: Numbers of ranks, one test per number.
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
    """Parts of pytest's session that the host repeats.

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
        timeout: Seconds until the test is stopped on all ranks.
        basetemp: Folder for temporary folders.
    """

    nodeid: str
    file: str
    path: tuple[str, ...]
    timeout: float
    basetemp: Path


@dataclass(frozen=True)
class Warned:
    """A warning that pytest recorded on a rank, as the arguments of its hook."""

    warning_message: Any
    when: str
    nodeid: str
    location: tuple[str, int, str] | None


@dataclass
class TaskResult:
    """Result of a test.

    Attributes:
        world: Outcomes of the ranks, or None if they were not started.
        refused: Reason why the test could not be run, or empty.
        unavailable: Reason why this machine doesn't have the test's backend, or empty.
        reports: Every rank's pytest reports in serialized form.
        findings: Findings of the sanitizer.
        calls: Recorded calls of all ranks, with their counts.
        warnings: Warnings of all ranks by message and line.
        examples: Description of the first hypothesis example that differed between ranks, or empty.
    """

    world: WorldReport | None = None
    refused: str = ""
    unavailable: str = ""
    reports: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    calls: tuple[CallCount, ...] = ()
    warnings: dict[tuple[object, ...], Warned] = field(default_factory=dict)
    examples: str = ""
