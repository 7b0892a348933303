"""A progress bar and a spinner on standard error, erased at the end.

Drawn by calls or from a timer signal, never from a thread: ranks are forked from this process,
and forking a process with threads isn't safe. Ranks that were forked while it is shown neither
draw nor erase it. Nothing is drawn if standard error isn't a terminal, or is a dumb one.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType, TracebackType

from rich import progress as bars
from rich.table import Column
from typing_extensions import Self

from distdemo.view.console import messages
from distdemo.view.foreign import one_line

DELAY_S = 0.5  # before the first frame of a spinner
INTERVAL_S = 0.1  # between two frames
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[2K"


def visible() -> bool:
    """Return True if standard error is a terminal that can be redrawn.

    Checks the stream itself, as FORCE_COLOR makes Rich assume a terminal.
    """
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


class Progress:
    """A progress bar: cases done, cases failed and the current case.

    Args:
        total: Number of cases.
        enabled: False to show nothing.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        self._owner = os.getpid()
        self._drawn = -INTERVAL_S
        self._bar = _bar() if enabled and visible() else None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, failed="")

    @property
    def visible(self) -> bool:
        """True if it is shown."""
        return self._bar is not None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None and os.getpid() == self._owner:
            self._bar.stop()

    def advance(self, done: int, failed: int, now: str) -> None:
        """Redraw the bar, at most once per `INTERVAL_S`. Cheap; can be called in every iteration.

        Call it while waiting, too: the clock on the bar advances only with this.

        Args:
            done: Number of finished cases.
            failed: Number of failed cases.
            now: Current activity, in a few words.
        """
        moment = monotonic()
        if self._bar is None or moment - self._drawn < INTERVAL_S or os.getpid() != self._owner:
            return
        self._drawn = moment
        self._bar.update(
            self._task,
            completed=done,
            description=now,
            failed=f"{failed} failed" if failed else "",
        )
        self._bar.refresh()


def _bar() -> bars.Progress:
    """Return the bar, with count, failures, clock and, in the remaining width, the activity."""
    return bars.Progress(
        bars.BarColumn(bar_width=20),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[failed]}", style="bold red", markup=False),
        bars.TimeElapsedColumn(),
        bars.TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="crop"),
        ),
        console=messages(),
        auto_refresh=False,  # True starts a thread
        transient=True,
        expand=True,
        redirect_stdout=False,  # ranks would inherit the replaced streams
        redirect_stderr=False,
    )


@contextmanager
def spinner(text: str, *, enabled: bool = True) -> Iterator[None]:
    """Show a spinner and the elapsed seconds if the block takes longer than ``DELAY_S``."""
    if not (enabled and visible() and threading.current_thread() is threading.main_thread()):
        yield
        return
    frames = itertools.cycle(
        _FRAMES if (sys.stderr.encoding or "").lower().startswith("utf") else "|/-\\"
    )
    text = one_line(text)
    started = monotonic()
    owner = os.getpid()

    def draw(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        if os.getpid() == owner:
            line = f"{_CLEAR}{next(frames)} {text} ({monotonic() - started:.1f} s)"
            os.write(2, line.encode(errors="replace"))

    before = signal.signal(signal.SIGALRM, draw)
    signal.setitimer(signal.ITIMER_REAL, DELAY_S, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if monotonic() - started >= DELAY_S:
            os.write(2, _CLEAR.encode())
