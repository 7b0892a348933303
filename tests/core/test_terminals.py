"""What a terminal gets: colours and a spinner where they are wanted, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import time

from forked import fork_command
from helpers import PATIENCE

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_a_terminal(*arguments, columns=80, **environment):
    """Run the command with a pseudo-terminal as its output: (exit code, all that it wrote)."""
    main, side = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    whole = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI")}
    env = {**whole, **settings}
    process = fork_command(arguments, stdin=side, stdout=side, stderr=side, env=env)
    os.close(side)
    written = b""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if not select.select([main], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(main, 1 << 16)
        except OSError:  # the other side is closed
            break
        written += data
    os.close(main)
    return process.wait(PATIENCE), written.decode(errors="replace")


def test_a_terminal_gets_a_spinner_while_it_takes_long_and_colours_for_the_ranks():
    code, text = on_a_terminal("barrier", "-n", "2", "--straggler", "1:0.8")
    assert code == 0, text
    assert "\x1b[36m" in text  # rank 0 is cyan, in every table
    assert "2 ranks over gloo (" in text
    assert text.index("2 ranks over gloo (") < text.rindex("\x1b[2K") < text.index("Verified")


def test_no_line_is_wider_than_the_terminal_and_no_color_is_respected():
    code, text = on_a_terminal("all-gather", "-n", "2", columns=40, NO_COLOR="1")
    assert code == 0, text
    assert "\x1b[3" not in text
    shown = ESCAPES.sub("", text.rpartition("\x1b[2K")[2])
    assert max(map(len, shown.splitlines())) <= 40
