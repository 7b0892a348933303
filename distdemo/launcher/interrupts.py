"""Ctrl-C and its kin while ranks run: noted, not obeyed at once, so that no rank is forgotten."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within the block a signal only sets ``received`` and makes ``fileno()`` readable.

    At the end the handlers that were there before are back; ``redeliver`` then hands them the
    signal. In a thread other than the main one Python allows no handlers, and nothing is watched.

    Attributes:
        descriptors: both ends of a pipe, for a forked child to close.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._owner = os.getpid()
        self._before: dict[int, Any] = {}
        self.descriptors = self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """A descriptor that becomes readable when a signal came."""
        return self._read

    def __enter__(self) -> Interrupts:  # noqa: PYI034 - nobody inherits; Self needs Python 3.11
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> bool:
        """Whether a signal comes within this time, or came before."""
        signalled = select.poll()
        signalled.register(self._read, select.POLLIN)
        signalled.poll(1000 * seconds)
        return self.received is not None

    def redeliver(self, report: WorldReport | None = None) -> None:
        """Send this process the signal that came, now that its own handlers are back.

        Args:
            report: of the world that it ended; what the handlers raise carries it, see
                ``verdict.report_of``.
        """
        if self.received is None:
            return
        try:
            signal.raise_signal(self.received)
        except BaseException as stop:
            stop.__dict__["report"] = report
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A rank, forked a moment ago, that has not yet set its own handlers.
            if number != signal.SIGINT:
                os._exit(128 + number)
            return
        self.received = number
        with suppress(BlockingIOError):  # full: there is enough to read
            os.write(self._write, b"\0")
