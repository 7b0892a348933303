"""Play a trace in the terminal: pause, step and quit by keys."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from contextlib import closing, suppress
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from distdemo.trace.view_picture import Picture
from distdemo.view import colours

ROUND_S = 1.2  # seconds that each round is played at speed 1
BAR_COLUMNS = 20  # columns of the bar of rounds
KEYS = {
    **dict.fromkeys((b" ",), "pause"),
    **dict.fromkeys((b"\x1b[C", b"\x1bOC"), "forward"),
    **dict.fromkeys((b"\x1b[D", b"\x1bOD"), "back"),
    **dict.fromkeys((b"q", b"Q", b"\x04"), "quit"),  # Ctrl-D
}
"""Actions by the bytes that a terminal sends."""
_SEQUENCE = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[^\x1b]|\x1b(?![\[O]?$)", re.DOTALL)


def play(picture: Picture, console: Console, speed: float) -> None:
    """Play all rounds in place, and let keys pause, step and quit.

    Without a terminal as standard input, or in the background, there are no keys.

    Args:
        picture: Picture of the trace.
        console: Terminal.
        speed: Speed; 1 shows each round for 1.2 s.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The terminal is restored.
    """
    console.print(picture.draw_legend(), Text(), sep="\n")
    playback = _Playback(picture, speed)
    with closing(_Keyboard()) as keyboard:
        while not playback.ended:
            with Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live:
                suspended = playback.run(live, keyboard)
            if suspended:
                keyboard.suspend()


class _Playback:
    """The round that is shown, and whether it is paused."""

    def __init__(self, picture: Picture, speed: float) -> None:
        self.ended = False
        self._picture, self._seconds = picture, ROUND_S / speed
        self._at, self._last, self._paused = 0, len(picture.frames) - 1, False

    def run(self, live: Live, keyboard: _Keyboard) -> bool:
        """Play until the end; return True if the process should be suspended before that."""
        while not self.ended:
            live.update(self._draw(has_keys=keyboard.is_used), refresh=True)
            action = keyboard.read(None if self._paused else self._seconds)
            if action == "suspend":
                return True
            self._act(action)
        return False

    def _act(self, action: str) -> None:
        if action == "pause":
            self._paused = not self._paused
        elif action in ("back", "forward"):
            self._paused = True
            by = 1 if action == "forward" else -1
            self._at = min(max(self._at + by, 0), self._last)
        elif action == "quit" or self._at == self._last:
            self.ended = True
        else:
            self._at += 1

    def _draw(self, *, has_keys: bool) -> Group:
        done = round(BAR_COLUMNS * self._at / self._last)
        bar = f"{'━' * done}{'╌' * (BAR_COLUMNS - done)} {self._at}/{self._last}"
        keys = f"  space {'play' if self._paused else 'pause'} · ← → step · q quit"
        status = Text(bar + keys * has_keys, style=colours.QUIET)
        return Group(*self._picture.draw_still(self._at), status)


class _Keyboard:
    """Keys of the terminal, without echo. The terminal is restored at exit and while suspended.

    Attributes:
        is_used: True if standard input is a terminal, and this process is in its foreground.
    """

    def __init__(self) -> None:
        self.is_used, self._received = False, b""
        if sys.stdin is not None and sys.stdin.isatty():
            self._input = sys.stdin.fileno()
            with suppress(OSError):  # it doesn't control this process
                self.is_used = os.tcgetpgrp(self._input) == os.getpgrp()
        # A signal is handled between two reads, when the terminal is in a known state.
        self._wake, self._woken = os.pipe()
        if self.is_used:
            self._saved = termios.tcgetattr(self._input)
            self._stop_handler = signal.getsignal(signal.SIGTSTP)
            self._take()

    def close(self) -> None:
        """Restore the terminal."""
        if self.is_used:
            self._release()
        os.close(self._wake)
        os.close(self._woken)

    def _take(self) -> None:
        if self._stop_handler == signal.SIG_DFL:  # ignored where nobody could continue it
            signal.signal(signal.SIGTSTP, lambda *_: os.write(self._woken, b"z"))
        tty.setcbreak(self._input, termios.TCSADRAIN)

    def _release(self) -> None:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._saved)
        signal.signal(signal.SIGTSTP, self._stop_handler)

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z does, and return when it continues."""
        self._release()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._take()

    def read(self, seconds: float | None) -> str:
        """Return the next action; ``suspend`` for Ctrl-Z; an empty string if there was none.

        Args:
            seconds: Seconds to wait, or None for no limit.
        """
        deadline = None if seconds is None else monotonic() + seconds
        watched = [self._wake, *([self._input] if self.is_used else [])]
        while True:
            while found := _SEQUENCE.match(self._received):
                self._received = self._received[found.end() :]
                if found.group() in KEYS:
                    return KEYS[found.group()]
            left = None if deadline is None else max(0.0, deadline - monotonic())
            ready, _, _ = select.select(watched, [], [], left)
            if not ready:
                return ""
            if self._wake in ready:
                os.read(self._wake, 1)
                return "suspend"
            with suppress(OSError):  # the terminal was closed
                if typed := os.read(self._input, 64):
                    self._received += typed
                    continue
            return "quit"
