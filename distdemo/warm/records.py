"""Requests to the warm process, its answers, and the report of ``distdemo warm``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MAX_REQUEST_BYTES = 8 << 20  # the system's limit on arguments and variables is 2 MiB; JSON escapes

Program = Literal[
    "distdemo.__main__.run_here",
    "distdemo.launcher.helper.main",
    "distdemo.testing.plugin.run_session",
]
"""Functions that a forked child can run."""


@dataclass(frozen=True, slots=True)
class Request:
    """A program that is to run in the warm process.

    Attributes:
        program: Function to call.
        executable: ``sys.executable``.
        orig_argv: ``sys.orig_argv``.
        argv: ``sys.argv``.
        path: ``sys.path``.
        environ: Environment variables.
        facts: Facts about the client that only it can read, by name.
        descriptors: Numbers of the descriptors that follow the request.
    """

    program: Program
    executable: str
    orig_argv: tuple[str, ...]
    argv: tuple[str, ...]
    path: tuple[str, ...]
    environ: Mapping[str, str]
    facts: Mapping[str, str]
    descriptors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the warm process.

    Attributes:
        reason: Reason why the program must run in its own process, or empty.
        commands: Commands that have run in the warm process.
        left_s: Seconds without a command after which it exits.
    """

    reason: str
    commands: int
    left_s: float


@dataclass(frozen=True, slots=True)
class WarmReport:
    """Report of ``distdemo warm``.

    Attributes:
        state: State of the warm process after the command.
        pid: Its process id, or None if there is none.
        memory_bytes: Its memory; a page that n processes share counts 1/n.
        left_s: Seconds without a command after which it exits.
        commands: Commands that have run in it.
        cold: Reason why a command typed here would not run in it; empty if it would.
    """

    state: Literal["warm", "stopped", "none", "unusable"]
    pid: int | None = None
    memory_bytes: int = 0
    left_s: float = 0.0
    commands: int = 0
    cold: str = ""
