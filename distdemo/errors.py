"""The exceptions of distdemo and their exit codes.

::

    DistdemoError                 base class of all errors
    ├── UsageError                the request is invalid; no rank was started             (exit 2)
    │   └── UnavailableError      this machine doesn't have the backend or the GPUs       (exit 2)
    ├── JoinedWorldError          part of a larger world lost contact with the rest       (exit 1)
    └── WorldError                a rank failed                                           (exit 1)
        └── WorldInterrupted      a signal asked this process to stop                     (exit 1)

    Terminated                    this process received SIGTERM or SIGHUP                 (exit 1)

Ctrl-C raises Python's ``KeyboardInterrupt`` (exit 130). A wrong result is not an exception but a
report whose ``ok`` is false (exit 1).
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
ALL_EXITED = "All ranks have exited; nothing is left behind."
"""End of the message after a signal."""
EXIT_INTERRUPTED = 130
MAX_LINE = 2_000  # characters of a line of an error that are shown


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


class UnavailableError(UsageError):
    """A valid request for a backend or GPUs that this machine doesn't have."""


class JoinedWorldError(DistdemoError):
    """A failure that can't be reported to rank 0, so each process reports its own."""


class Terminated(BaseException):
    """A request to stop: SIGTERM or SIGHUP, whose name is the argument.

    Like ``KeyboardInterrupt`` it isn't an ``Exception``, so ``except Exception`` doesn't catch it.
    As after Ctrl-C, all ranks have exited when a launcher raises it.
    """
