"""The signals that ask a command to stop, and the exit code that they leave it with."""

from __future__ import annotations

import signal
from types import FrameType
from typing import ClassVar, NoReturn

from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, Terminated


class Signals:
    """SIGTERM as an exception, and the memory of what came, whoever swallowed it.

    Attributes:
        latest: of this process, which has one handler a signal: its last command's.
        interrupted: Ctrl-C was pressed.
        terminated: SIGTERM came.
    """

    latest: ClassVar[Signals | None] = None
    interrupted = False
    terminated = False

    def install(self) -> None:
        """From here on signals raise an exception and are remembered here."""
        type(self).latest = self
        signal.signal(signal.SIGTERM, self._terminate)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    @property
    def code(self) -> int:
        """What to leave with for the sake of a signal; 0 if none came."""
        return EXIT_INTERRUPTED if self.interrupted else EXIT_FAILED if self.terminated else 0

    def _terminate(self, number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        self.terminated = True
        raise Terminated

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self.interrupted = True
        raise KeyboardInterrupt


def code_of_interruption() -> int:
    """The exit code of a result that a signal cut short: 130, but 1 after SIGTERM."""
    known = Signals.latest
    return (known.code if known is not None else 0) or EXIT_INTERRUPTED
