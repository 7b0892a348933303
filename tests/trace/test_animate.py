"""``distdemo trace --animate`` on a terminal, started as a shell starts it."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from forked import as_python
from helpers import children
from terminal import Terminal, in_a_terminal

# A shell with one job. When that ends, it reports whether the terminal is restored.
SHELL = """
import os, signal, sys, termios
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
RIGHT, LEFT = "\x1b[C", "\x1b[D"


def shows_cursor(raw: str) -> bool:
    return raw.rindex("\x1b[?25h") > raw.rindex("\x1b[?25l")


def on_a_terminal(folder: Path, *words: str) -> AbstractContextManager[Terminal]:
    """Run the command as the job of a shell."""
    return in_a_terminal(["-c", SHELL, *words], folder, by=as_python, env={"LINES": "40"})


def test_keys_step_and_quit(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "trace", "-n", "2", "--animate") as terminal:
        terminal.wait_for("0/2  any key: next · ←: back · q: quit")
        terminal.type(" ")
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.type(RIGHT)
        terminal.wait_for("2/2  any key")
        terminal.type(LEFT)
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.type("q")
        terminal.wait_for("Verified: 4 elements")
        terminal.wait_for("ended, restored, 0")
        assert shows_cursor(terminal.raw)


@pytest.mark.parametrize(
    ("key", "code"), [("\x04", 0), ("\x03", 130), ("", 1)], ids=["ctrl-d", "ctrl-c", "sigterm"]
)
def test_the_terminal_is_restored_however_it_ends(key: str, code: int, tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "trace", "-n", "2", "--animate") as terminal:
        terminal.wait_for("q: quit")
        if key:
            terminal.type(key)
        else:
            (job,) = children(terminal.run.process.pid)
            os.kill(job, signal.SIGTERM)
        terminal.wait_for(f"ended, restored, {code}")
        assert shows_cursor(terminal.raw)


def test_a_speed_plays_it_to_the_end(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "trace", "-n", "2", "--speed", "50") as terminal:
        terminal.wait_for("2/2")
        terminal.wait_for("ended, restored, 0")
