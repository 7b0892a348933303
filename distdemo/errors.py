"""The exceptions of distdemo, and the exit codes that they stand for.

::

    DistdemoError                 anything that this project raises on purpose
    ├── UsageError                the request can't be carried out; no rank was started   (exit 2)
    ├── LonelyError               a part of a larger world lost touch with the rest       (exit 1)
    └── WorldError                ranks ran and one of them is at fault                   (exit 1)
        └── WorldInterrupted      a signal asked this process to stop                     (exit 1)

    Terminated                    SIGTERM or SIGHUP reached this process                 (exit 1)

Ctrl-C is Python's own ``KeyboardInterrupt`` (exit 130). A result that is wrong is no exception:
it is a report whose ``ok`` is false (exit 1).
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
    """Something went wrong: what happened, why, and what to try.

    Args:
        what: one line, what happened (and to which rank).
        why: one line, the reason as far as it is known.
        hint: one line, what to try.
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.hint) if line)


class UsageError(DistdemoError):
    """The request can't be carried out; found before any rank was started."""


class LonelyError(DistdemoError):
    """Rank 0 will never hear of it: the process that has it speaks for itself."""


class WorldError(DistdemoError):
    """A world of ranks failed.

    Attributes:
        rank: the rank at fault, or None where no single rank is (a deadlock of all of them).
        traceback: the Python traceback of that rank, empty if it left none.
        report: how every rank ended.
    """

    def __init__(self, report: WorldReport) -> None:
        verdict = report.verdict
        if verdict is None:
            raise ValueError("a world without a fault raises no WorldError")
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
    """SIGTERM or SIGHUP, whose name is the argument, asked this process to stop.

    Like ``KeyboardInterrupt`` it is not an ``Exception``, so a general handler doesn't catch it.
    The ranks have exited by the time it leaves a launcher, as after Ctrl-C.
    """


class WorldInterrupted(WorldError):  # noqa: N818 - it reads as what happened, as KeyboardInterrupt does
    """A signal asked this process to stop while ranks ran; they are gone."""
