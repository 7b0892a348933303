"""Show a trace round by round in the terminal: by keys, or at a speed."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from distdemo.trace.view_picture import Picture
from distdemo.view import colours

ROUND_S = 1.2  # seconds that each round is shown at speed 1
BAR_COLUMNS = 20  # columns of the bar of rounds
BACK = (b"\x1b[D", b"\x1bOD", b"\x7f")  # left arrow, backspace
QUIT = (b"q", b"Q", b"\x04", b"")  # also Ctrl-D, and a terminal that was closed


def play(picture: Picture, console: Console, speed: float | None) -> None:
    """Show all rounds in place.

    Args:
        picture: Picture of the trace.
        console: Terminal.
        speed: Speed at which the rounds follow each other; 1 shows each for 1.2 s. None: each key
            shows the next round; without a terminal for input, speed 1.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The terminal is restored.
    """
    by_keys = speed is None and sys.stdin is not None and sys.stdin.isatty()
    last = len(picture.frames) - 1
    index = 0
    console.print(picture.draw_legend(), Text(), sep="\n")
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with _unbuffered(by_keys), live:
        while index <= last:
            keys = "  any key: next · ←: back · q: quit" if by_keys else ""
            status = Text(_bar(index, last) + keys, style=colours.QUIET)
            live.update(Group(*picture.draw_still(index), status), refresh=True)
            if not by_keys:
                sleep(ROUND_S / (speed or 1.0))
            index = _next_index(index, last) if by_keys else index + 1


@contextmanager
def _unbuffered(by_keys: bool) -> Iterator[None]:
    """Have the terminal pass on each key at once, without echo, and restore it."""
    if not by_keys:
        yield
        return
    saved = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def _next_index(index: int, last: int) -> int:
    """Wait for a key and return the index of the next frame; after the last one to quit."""
    keys = os.read(sys.stdin.fileno(), 16)  # several if they are pressed fast
    if keys[:1] in QUIT:
        return last + 1
    return max(0, index - 1) if keys.startswith(BACK) else index + 1


def _bar(index: int, last: int) -> str:
    done = round(BAR_COLUMNS * index / last)
    return f"{'━' * done}{'╌' * (BAR_COLUMNS - done)} {index}/{last}"
