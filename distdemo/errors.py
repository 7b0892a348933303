"""The exceptions of distdemo and their exit codes.

::

    DistdemoError                 base class of all errors
    ├── UsageError                the request is invalid; no rank was started             (exit 2)
    ├── JoinedWorldError          part of a larger world lost contact with the rest       (exit 1)
    └── WorldError                a rank failed                                           (exit 1)
        └── WorldInterrupted      a signal asked this process to stop                     (exit 1)

    Terminated                    this process received SIGTERM or SIGHUP                 (exit 1)

Ctrl-C raises Python's ``KeyboardInterrupt`` (exit 130). A wrong result is not an exception but a
report whose ``ok`` is false (exit 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class DistdemoError(Exception):
    """Base class for errors shown to the user in three lines.

    Args:
        what: Line that states what happened, and to which rank.
        why: Line with the reason, if known.
        hint: Line with a suggestion.
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.hint) if line)


class UsageError(DistdemoError):
    """An invalid request, detected before any rank was started."""


class JoinedWorldError(DistdemoError):
    """A failure that can't be reported to rank 0, so each process reports its own."""


class WorldError(DistdemoError):
    """The failure of a world of ranks.

    Attributes:
        rank: Rank at fault, or None if there is no single one (a deadlock of all ranks).
        traceback: Python traceback of that rank, or empty.
        report: Outcomes of all ranks.
    """

    def __init__(self, report: WorldReport) -> None:
        verdict = report.verdict
        if verdict is None:
            raise ValueError("WorldError needs the report of a failed world")
        super().__init__(verdict.what, verdict.why, verdict.hint)
        self.report = report
        self.rank = verdict.ranks[0] if verdict.ranks else None
        self.traceback = verdict.traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n\n{self.traceback}" if self.traceback else text


class Terminated(BaseException):
    """A request to stop: SIGTERM or SIGHUP, whose name is the argument.

    Like ``KeyboardInterrupt`` it isn't an ``Exception``, so ``except Exception`` doesn't catch it.
    As after Ctrl-C, all ranks have exited when a launcher raises it.
    """


class WorldInterrupted(WorldError):  # noqa: N818 - named like KeyboardInterrupt
    """A signal that stopped this process while ranks ran. All ranks have exited."""
