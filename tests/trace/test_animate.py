"""``distdemo trace --animate`` on a terminal: keys, and how it leaves the terminal."""

from __future__ import annotations

import signal
import termios
from pathlib import Path

import pytest
from terminal import Terminal, in_a_terminal

TRACE = ["trace", "-n", "2", "--animate"]


def assert_restored(terminal: Terminal) -> None:
    flags = termios.tcgetattr(terminal._main)[3]
    assert flags & termios.ECHO
    assert flags & termios.ICANON
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")  # the cursor


def test_keys_step_and_quit(tmp_path: Path) -> None:
    with in_a_terminal(TRACE, tmp_path) as terminal:
        terminal.wait_for("0/2  any key: next · ←: back · q: quit")
        terminal.type(" ")
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.type("\x1b[C")  # right
        terminal.wait_for("2/2  any key")
        terminal.type("\x1b[D")  # left
        assert "Round 1 of 2" in terminal.wait_for("1/2  any key")
        terminal.type("q")
        terminal.wait_for("Verified: 4 elements")
        assert terminal.end() == 0
        assert_restored(terminal)


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("", 1)], ids=["ctrl-c", "sigterm"])
def test_the_terminal_is_restored_however_it_ends(key: str, code: int, tmp_path: Path) -> None:
    with in_a_terminal(TRACE, tmp_path) as terminal:
        terminal.wait_for("q: quit")
        if key:
            terminal.type(key)
        else:
            terminal.run.process.send_signal(signal.SIGTERM)
        assert terminal.end() == code
        assert_restored(terminal)
