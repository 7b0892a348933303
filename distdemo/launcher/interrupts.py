"""Defer Ctrl-C and other signals while ranks run, so that every rank is stopped."""

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
    """Context in which a signal only sets ``received`` and makes ``fileno()`` readable.

    On exit the previous handlers are restored; ``redeliver`` then sends them the signal. Python
    allows handlers in the main thread only, so in other threads no signal is caught.

    Attributes:
        descriptors: Both ends of a pipe, which forked children must close.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._owner = os.getpid()
        self._before: dict[int, Any] = {}
        self.descriptors = self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal has arrived."""
        return self._read

    def __enter__(self) -> Interrupts:  # noqa: PYI034 - no subclasses; Self needs Python 3.11
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._on_signal)
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
        """Return True if a signal has arrived or arrives within this time."""
        signalled = select.poll()
        signalled.register(self._read, select.POLLIN)
        signalled.poll(1000 * seconds)
        return self.received is not None

    def redeliver(self, report: WorldReport | None = None) -> None:
        """Send this process the signal it received, now that its handlers are restored.

        Args:
            report: Report of the world that the signal ended, attached to the exception that the
                handlers raise; see ``verdict.report_of``.
        """
        if self.received is None:
            return
        try:
            signal.raise_signal(self.received)
        except BaseException as stop:
            stop.__dict__["report"] = report
            raise

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A newly forked rank that hasn't set its own handlers yet.
            if number != signal.SIGINT:
                os._exit(128 + number)
            return
        self.received = number
        with suppress(BlockingIOError):  # full, so it is readable already
            os.write(self._write, b"\0")
