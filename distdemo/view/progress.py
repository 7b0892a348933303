"""A spinner or a progress bar in one line of standard error, erased at the end.

A timer signal draws it, never a thread: ranks are forked from this process, and forking a process
with threads isn't safe. Ranks that were forked while it is shown neither draw nor erase it. Nothing
is drawn if standard error isn't a terminal, or is a dumb one.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from distdemo.view.foreign import one_line

if TYPE_CHECKING:
    from typing_extensions import Self

DELAY_S = 0.5  # before the first frame
INTERVAL_S = 0.1  # between two frames
BAR_COLUMNS = 20
_CLEAR = b"\r\x1b[2K"


def visible() -> bool:
    """Return True if standard error is a terminal that can be redrawn.

    Checks the stream itself, as FORCE_COLOR makes Rich assume a terminal.
    """
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


class Progress(ExitStack):
    """A progress bar: cases done, cases failed and the current case.

    Args:
        total: Number of cases.
        enabled: False to show nothing.

    Attributes:
        visible: True if it is shown.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        super().__init__()
        self.visible = enabled and visible()
        self._total = total
        self._done = 0
        self._state = f"0/{total}"

    def __enter__(self) -> Self:
        self.enter_context(_drawn(self._text, enabled=self.visible))
        return self

    def advance(self, done: int, failed: int, now: str) -> None:
        """Set what is drawn next. Cheap; can be called in every iteration.

        Args:
            done: Number of finished cases.
            failed: Number of failed cases.
            now: Current activity, in a few words.
        """
        self._done = done
        self._state = f"{done}/{self._total}{f', {failed} failed' if failed else ''}: {now}"

    def _text(self) -> str:
        full = BAR_COLUMNS * self._done // max(1, self._total)
        return f"{'#' * full}{'.' * (BAR_COLUMNS - full)} {self._state}"


@contextmanager
def spinner(text: str, *, enabled: bool = True) -> Iterator[None]:
    """Show a spinner and the elapsed seconds if the block takes longer than ``DELAY_S``."""
    with _drawn(lambda: text, enabled=enabled and visible()):
        yield


@contextmanager
def _drawn(text: Callable[[], str], *, enabled: bool) -> Iterator[None]:
    """Draw this text and the elapsed seconds, from a timer signal, in this process only.

    Does nothing where signals can't be handled, or if the process's timer is in use.
    """
    is_free = signal.getitimer(signal.ITIMER_REAL)[0] == 0
    if not (enabled and is_free and threading.current_thread() is threading.main_thread()):
        yield
        return
    is_unicode = (sys.stderr.encoding or "").lower().startswith("utf")
    frames = itertools.cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if is_unicode else "|/-\\")
    started = monotonic()
    owner = os.getpid()

    def draw(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        if os.getpid() != owner:
            return
        clock = f" ({monotonic() - started:.1f} s)"
        room = shutil.get_terminal_size().columns - len(clock) - 3
        line = f"{next(frames)} {one_line(text())[:room]}{clock}"
        with suppress(OSError):  # standard error is closed
            os.write(2, _CLEAR + line.encode(errors="replace"))

    before = signal.signal(signal.SIGALRM, draw)
    signal.setitimer(signal.ITIMER_REAL, DELAY_S, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if monotonic() - started >= DELAY_S:
            os.write(2, _CLEAR)
