"""What is drawn on standard error while something runs, and wiped at the end.

Drawn by the caller's own calls or from a timer signal, never from a thread: ranks are forked from
this process, and a process with threads can't be forked safely. A rank that was forked meanwhile
draws nothing and wipes nothing. Where it would not be seen (standard error is no terminal, or is
a dumb one) nothing is drawn.
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

PATIENCE = 0.5  # seconds before the first frame of a spinner
INTERVAL = 0.1  # seconds between two drawings
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[2K"


def visible() -> bool:
    """Whether what is drawn on standard error is seen.

    Asked of the stream itself: Rich takes FORCE_COLOR for a terminal.
    """
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


class Progress:
    """Shows how many cases are done, how many failed, and which one runs; wiped at the end.

    Does nothing where it would not be seen: standard error is no terminal, or is a dumb one. A
    rank that was forked meanwhile draws nothing and wipes nothing.

    Args:
        total: how many cases there are.
        enabled: whether the user wants to see it.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        self._owner = os.getpid()
        self._drawn = -INTERVAL
        self._bar = _bar() if enabled and visible() else None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, failed="")

    @property
    def visible(self) -> bool:
        """Whether it is drawn."""
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
        """Draw, unless that was done a moment ago. Cheap enough to be called at every turn.

        The clock on the bar moves only with this: call it while waiting, too.

        Args:
            done: how many cases have ended, all in all.
            failed: how many of them failed.
            now: what is going on, in a few words.
        """
        moment = monotonic()
        if self._bar is None or moment - self._drawn < INTERVAL or os.getpid() != self._owner:
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
    """Columns: bar, count, failures, clock, and in what room is left, what is going on."""
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
    """Show a spinner and the seconds gone while the block takes longer than ``PATIENCE``.

    Does nothing where it would not be seen: standard error is no terminal, or is a dumb one.
    """
    if not (enabled and visible() and threading.current_thread() is threading.main_thread()):
        yield
        return
    frames = itertools.cycle(
        _FRAMES if (sys.stderr.encoding or "").lower().startswith("utf") else "|/-\\"
    )
    text = one_line(text)
    began = monotonic()
    owner = os.getpid()

    def draw(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        if os.getpid() == owner:
            line = f"{_CLEAR}{next(frames)} {text} ({monotonic() - began:.1f} s)"
            os.write(2, line.encode(errors="replace"))

    before = signal.signal(signal.SIGALRM, draw)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if monotonic() - began >= PATIENCE:
            os.write(2, _CLEAR.encode())
