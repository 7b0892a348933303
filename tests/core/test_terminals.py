"""What a terminal gets: colours and a spinner where they are wanted, and nowhere else."""

from __future__ import annotations

import pytest
from terminal import ESCAPES, in_a_terminal

pytestmark = pytest.mark.processes


def test_a_terminal_gets_a_spinner_while_it_takes_long_and_colours_for_the_ranks(tmp_path):
    with in_a_terminal(["barrier", "-n", "2", "--straggler", "1:0.8"], tmp_path) as terminal:
        assert terminal.end() == 0, terminal.raw
    text = terminal.raw
    assert "\x1b[36m" in text  # rank 0 is cyan, in every table
    assert "2 ranks over gloo (" in text
    assert text.index("2 ranks over gloo (") < text.rindex("\x1b[2K") < text.index("Verified")


def test_no_line_is_wider_than_the_terminal_and_no_color_is_respected(tmp_path):
    words = ["all-gather", "-n", "2"]
    env = {"COLUMNS": "40", "NO_COLOR": "1"}
    with in_a_terminal(words, tmp_path, env=env) as terminal:
        assert terminal.end() == 0, terminal.raw
    assert "\x1b[3" not in terminal.raw
    shown = ESCAPES.sub("", terminal.raw.rpartition("\x1b[2K")[2])
    assert max(map(len, shown.splitlines())) <= 40
