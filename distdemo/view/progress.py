"""A progress bar and a spinner on standard error, erased at the end.

Drawn by calls or from a timer signal, never from a thread: ranks are forked from this process,
and forking a process with threads isn't safe. Ranks that were forked while it is shown neither
draw nor erase it. If standard error isn't a terminal, or is a dumb one, a line is written every
`LINE_S` seconds instead.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.table import Column

from distdemo.view.console import messages
from distdemo.view.foreign import one_line

if TYPE_CHECKING:
    from typing_extensions import Self

DELAY_S = 0.5  # before the first frame of a spinner
INTERVAL_S = 0.1  # between two frames
LINE_S = 10.0  # between two lines, where nothing can be redrawn
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
    """A progress bar, or lines: cases done, cases failed and the current case.

    Args:
        total: Number of cases.
        enabled: False to show nothing.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        self._owner = os.getpid()
        self._state = f"0/{total}"
        self._total = total
        self._lines = ExitStack()
        self._enabled = enabled
        self._drawn = -INTERVAL_S
        self._bar = _bar() if enabled and visible() else None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, failed="")

    @property
    def visible(self) -> bool:
        """True if it is shown, or its lines are."""
        return self._enabled

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        elif self._enabled:
            self._lines.enter_context(_lines(lambda: self._state))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.close()
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
        if self._bar is None:
            self._state = f"{done}/{self._total}{f', {failed} failed' if failed else ''}: {now}"
            return
        if moment - self._drawn < INTERVAL_S or os.getpid() != self._owner:
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
    if not enabled:
        yield
        return
    text = one_line(text)
    if not visible():
        with _lines(lambda: text):
            yield
        return
    frames = itertools.cycle(
        _FRAMES if (sys.stderr.encoding or "").lower().startswith("utf") else "|/-\\"
    )
    started = monotonic()

    def draw(seconds: float) -> None:
        line = f"{_CLEAR}{next(frames)} {text} ({seconds:.1f} s)"
        os.write(2, line.encode(errors="replace"))

    try:
        with _timer(draw, DELAY_S, INTERVAL_S):
            yield
    finally:
        if monotonic() - started >= DELAY_S:
            os.write(2, _CLEAR.encode())


@contextmanager
def _lines(text: Callable[[], str]) -> Iterator[None]:
    """Write this text and the elapsed seconds every `LINE_S` seconds."""

    def write(seconds: float) -> None:
        with suppress(OSError):  # nobody reads standard error
            os.write(2, f"{one_line(text())} ({seconds:.0f} s)\n".encode(errors="replace"))

    with _timer(write, LINE_S, LINE_S):
        yield


@contextmanager
def _timer(draw: Callable[[float], None], delay_s: float, interval_s: float) -> Iterator[None]:
    """Call ``draw`` with the elapsed seconds, from a timer signal, in this process only.

    Does nothing where signals can't be handled, or if the process's timer is in use.
    """
    free = signal.getitimer(signal.ITIMER_REAL)[0] == 0
    if not free or threading.current_thread() is not threading.main_thread():
        yield
        return
    started = monotonic()
    owner = os.getpid()

    def on_alarm(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        if os.getpid() == owner:
            draw(monotonic() - started)

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, delay_s, interval_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
