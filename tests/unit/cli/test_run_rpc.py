from __future__ import annotations

import io
import sys
from contextlib import ExitStack

import pytest

from distdemo.rpc.records import Progress
from distdemo.rpc.run_rpc import _follow


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_takes_the_spinner_s_place_once_a_training_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with ExitStack() as shown:
        shown.callback(terminal.write, "the spinner is gone")
        hear = _follow(shown)
        assert terminal.getvalue() == ""
        hear(0, Progress(3, 9, remote=True))
        drawn = terminal.getvalue()
        assert drawn.index("the spinner is gone") < drawn.index("3/9") < drawn.index("over RPC")
    assert terminal.getvalue().count("the spinner is gone") == 1


def test_whoever_is_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with ExitStack() as shown:
        _follow(shown)(0, Progress(9, 9, remote=False))
    assert stream.getvalue() == ""
