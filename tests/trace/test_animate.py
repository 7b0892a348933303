"""``distdemo trace --animate`` on a terminal, started as a shell starts it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers import PATIENCE, children

# A shell with one job. When that ends, it reports whether the terminal is restored.
SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
before = termios.tcgetattr(0)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-m", "distdemo", *sys.argv[1:]])
_, status = os.waitpid(job, 0)
os.tcsetpgrp(0, os.getpgrp())
state = "restored" if termios.tcgetattr(0) == before else "changed"
print(f"ended, {state}, {os.waitstatus_to_exitcode(status)}", flush=True)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RIGHT, LEFT = "\x1b[C", "\x1b[D"


class Terminal:
    """The other side of a terminal."""

    def __init__(self, main: int, pid: int) -> None:
        self._main, self.pid = main, pid
        self.raw = self._unread = ""

    def press(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def wait_for(self, text: str) -> str:
        """Return what is displayed up to this text; it has not been returned before."""
        until = time.monotonic() + PATIENCE
        while text not in (shown := ESCAPES.sub("", self._unread)):
            assert time.monotonic() < until, f"no {text!r} in {shown!r}"
            if select.select([self._main], [], [], 1.0)[0]:
                data = os.read(self._main, 1 << 16).decode(errors="replace")
                self.raw += data
                self._unread += data
        before, _, self._unread = shown.partition(text)
        return before


def shows_cursor(raw: str) -> bool:
    return raw.rindex("\x1b[?25h") > raw.rindex("\x1b[?25l")


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[Terminal]:
    main, side = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, *arguments],
        stdin=side,
        stdout=side,
        stderr=side,
        env=env | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"},
        start_new_session=True,
    )
    os.close(side)
    try:
        yield Terminal(main, process.pid)
        process.wait(PATIENCE)
    finally:
        os.close(main)  # hangs up, which ends whatever is left
        process.kill()
        process.wait()


def test_keys_step_and_quit() -> None:
    with on_a_terminal("trace", "-n", "2", "--animate") as terminal:
        terminal.wait_for("0/2  any key: next · ←: back · q: quit")
        terminal.press(" ")
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.press(RIGHT)
        terminal.wait_for("2/2  any key")
        terminal.press(LEFT)
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.press("q")
        terminal.wait_for("Verified: 4 elements")
        terminal.wait_for("ended, restored, 0")
        assert shows_cursor(terminal.raw)


@pytest.mark.parametrize(
    ("key", "code"), [("\x04", 0), ("\x03", 130), ("", 1)], ids=["ctrl-d", "ctrl-c", "sigterm"]
)
def test_the_terminal_is_restored_however_it_ends(key: str, code: int) -> None:
    with on_a_terminal("trace", "-n", "2", "--animate") as terminal:
        terminal.wait_for("q: quit")
        if key:
            terminal.press(key)
        else:
            (job,) = children(terminal.pid)
            os.kill(job, signal.SIGTERM)
        terminal.wait_for(f"ended, restored, {code}")
        assert shows_cursor(terminal.raw)


def test_a_speed_plays_it_to_the_end() -> None:
    with on_a_terminal("trace", "-n", "2", "--speed", "50") as terminal:
        terminal.wait_for("2/2")
        terminal.wait_for("ended, restored, 0")
