from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from distdemo.view import redrawn
from distdemo.view.progress import INTERVAL, Progress


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal: in the test itself, for pytest sets it between fixtures."""

    def made() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the bar sees: its only element, to be changed by the test."""
    now = [100.0]
    monkeypatch.setattr(redrawn, "monotonic", lambda: now[0])
    return now


def threads() -> int:
    """How many threads the kernel sees in this process."""
    return len(os.listdir("/proc/self/task"))


def test_a_terminal_sees_what_is_done_what_failed_and_what_runs(
    make_terminal: Callable[[], Terminal],
) -> None:
    terminal = make_terminal()
    with Progress(40) as bar:
        bar.advance(12, 3, "all_gather/[b]single")
        shown = terminal.getvalue()
    assert "12/40" in shown
    assert "3 failed" in shown
    assert "all_gather/[b]single" in shown


def test_no_failure_is_not_mentioned(make_terminal: Callable[[], Terminal]) -> None:
    terminal = make_terminal()
    with Progress(40) as bar:
        bar.advance(12, 0, "scatter")
    assert "failed" not in terminal.getvalue()


def test_it_is_wiped_away_at_the_end_also_of_an_error(
    make_terminal: Callable[[], Terminal],
) -> None:
    terminal = make_terminal()
    with suppress(KeyboardInterrupt), Progress(40) as bar:
        bar.advance(12, 0, "scatter")
        raise KeyboardInterrupt
    text = terminal.getvalue()
    assert text.rindex("12/40") < text.rindex("\x1b[2K")
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h")  # the cursor is there again


def test_no_thread_is_alive_while_it_shows(make_terminal: Callable[[], Terminal]) -> None:
    terminal = make_terminal()
    before = threading.enumerate(), threads()
    with Progress(40) as bar:
        bar.advance(1, 0, "scatter")
        assert "1/40" in terminal.getvalue()
        assert (threading.enumerate(), threads()) == before
    assert (threading.enumerate(), threads()) == before


def test_the_standard_streams_stay_as_they_are(make_terminal: Callable[[], Terminal]) -> None:
    make_terminal()
    streams = sys.stdout, sys.stderr
    with Progress(40):
        assert (sys.stdout, sys.stderr) == streams


def test_it_is_drawn_ten_times_a_second_at_most(
    make_terminal: Callable[[], Terminal], clock: list[float]
) -> None:
    terminal = make_terminal()
    with Progress(1000) as bar:
        for done in range(1000):
            clock[0] = 100 + done / 1000  # a case each millisecond
            bar.advance(done, 0, f"case-{done}.")
    assert 9 <= terminal.getvalue().count("case-") <= 11


def test_the_first_call_draws_and_so_does_one_after_the_interval(
    make_terminal: Callable[[], Terminal], clock: list[float]
) -> None:
    terminal = make_terminal()
    with Progress(40) as bar:
        bar.advance(1, 0, "one")
        bar.advance(2, 0, "two")
        clock[0] += INTERVAL + 0.001
        bar.advance(3, 0, "three")
    text = terminal.getvalue()
    assert "one" in text
    assert "two" not in text
    assert "three" in text


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_long_line_is_cut_and_not_broken(
    columns: int, make_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = make_terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress(4000) as bar:
        bar.advance(1200, 37, "all_gather/single/" * 30)
        shown = terminal.getvalue()
    assert "1200/4000" in shown
    assert "\n" not in shown


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_dumb_terminal_sees_nothing(
    name: str, make_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = make_terminal()
    monkeypatch.setenv("TERM", name)
    with Progress(40) as bar:
        bar.advance(1, 0, "scatter")
    assert terminal.getvalue() == ""


def test_a_pipe_sees_nothing_even_if_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress(40) as bar:
        bar.advance(1, 0, "scatter")
    assert stream.getvalue() == ""


def test_who_wants_quiet_gets_it(make_terminal: Callable[[], Terminal]) -> None:
    terminal = make_terminal()
    with Progress(40, enabled=False) as bar:
        bar.advance(1, 0, "scatter")
    assert terminal.getvalue() == ""


def test_a_process_without_standard_error_can_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(40) as bar:
        bar.advance(1, 0, "scatter")


def test_a_forked_rank_neither_draws_nor_wipes(
    make_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = make_terminal()
    with Progress(40) as bar:
        shown = terminal.getvalue()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)  # what a rank would see is another number
            bar.advance(1, 0, "scatter")
            bar.__exit__(None, None, None)
        assert terminal.getvalue() == shown
