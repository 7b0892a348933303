"""``distdemo trace --animate`` on a terminal: keys, and how it leaves the terminal."""

from __future__ import annotations

import signal
import termios

import pytest
from processes import Start, Terminal

pytestmark = pytest.mark.processes
RIGHT, LEFT = "\x1b[C", "\x1b[D"
TRACE = ["trace", "-n", "2", "--animate"]


def assert_restored(terminal: Terminal) -> None:
    flags = termios.tcgetattr(terminal.main)[3]
    assert flags & termios.ECHO
    assert flags & termios.ICANON
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")  # the cursor


def test_keys_step_and_quit(start: Start) -> None:
    terminal = start.terminal("distdemo", *TRACE)
    terminal.wait_for("0/2  any key: next · ←: back · q: quit")
    terminal.type(" ")
    assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
    terminal.type(RIGHT)
    terminal.wait_for("2/2  any key")
    terminal.type(LEFT)
    assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
    terminal.type("q")
    terminal.wait_for("Verified: 4 elements")
    assert terminal.end() == 0
    assert_restored(terminal)


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("", 1)], ids=["ctrl-c", "sigterm"])
def test_the_terminal_is_restored_however_it_ends(start: Start, key: str, code: int) -> None:
    terminal = start.terminal("distdemo", *TRACE)
    terminal.wait_for("q: quit")
    if key:
        terminal.type(key)
    else:
        terminal.run.process.send_signal(signal.SIGTERM)
    assert terminal.end() == code
    assert_restored(terminal)
