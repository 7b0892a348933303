"""A spinner on standard error for whoever waits longer than half a second.

Drawn from a timer signal, not from a thread: ranks are forked from this process, and a process
with threads can't be forked safely. The timer is not inherited by the ranks.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 0.5  # seconds before the first frame
INTERVAL = 0.1  # seconds between frames
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[2K"


@contextmanager
def spinner(text: str, *, enabled: bool = True) -> Iterator[None]:
    """Show a spinner and the seconds gone while the block takes longer than ``PATIENCE``.

    Does nothing where nobody would see it: standard error is no terminal, or is a dumb one.
    """
    if not (enabled and _visible()):
        yield
        return
    frames = itertools.cycle(_FRAMES if _unicode() else "|/-\\")
    began = time.monotonic()
    owner = os.getpid()

    def draw(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        if os.getpid() == owner:
            line = f"{_CLEAR}{next(frames)} {text} ({time.monotonic() - began:.1f} s)"
            os.write(2, line.encode(errors="replace"))

    before = signal.signal(signal.SIGALRM, draw)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if time.monotonic() - began >= PATIENCE:
            os.write(2, _CLEAR.encode())


def _visible() -> bool:
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") != "dumb"
    )


def _unicode() -> bool:
    return (sys.stderr.encoding or "").lower().startswith("utf")
