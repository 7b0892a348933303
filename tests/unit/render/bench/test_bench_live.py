"""A measurement while it runs, on a terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import pytest
from measurements import made_report, made_row, made_series

from distdemo.bench.old_records import Course
from distdemo.bench.view_live import INTERVAL, NEWEST, Live
from distdemo.view import redrawn

Terminal = Callable[..., AbstractContextManager["Screen"]]
HALF = Course(0.5, 65.0, "all-reduce gloo, 64 KiB")
SECONDS = 10.0  # that a pseudo-terminal may take


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the table sees: its only element, to be changed by the test."""
    now = [100.0]
    monkeypatch.setattr(redrawn, "monotonic", lambda: now[0])
    return now


class Screen:
    """The other side of a pseudo-terminal."""

    def __init__(self, main: int) -> None:
        self.main = main
        self.text = ""

    def read(self, wanted: str = "") -> str:
        """All that was written so far, once that has this in it."""
        until = time.monotonic() + SECONDS
        while wanted not in self.text or select.select([self.main], [], [], 0)[0]:
            assert time.monotonic() < until, self.text
            if select.select([self.main], [], [], 0.1)[0]:
                self.text += os.read(self.main, 1 << 16).decode()
        return self.text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes standard error a pseudo-terminal of so many columns and lines."""

    @contextmanager
    def made(columns: int = 80, lines: int = 24) -> Iterator[Screen]:
        main, side = pty.openpty()
        with monkeypatch.context() as patch, os.fdopen(side, "w", encoding="utf-8") as stream:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("LINES", str(lines))
            patch.setenv("TERM", "xterm-256color")
            patch.setattr(sys, "stderr", stream)
            yield Screen(main)
        os.close(main)

    return made


def tasks() -> int:
    """How many threads the kernel sees in this process."""
    return len(os.listdir("/proc/self/task"))


def test_a_terminal_sees_progress_time_left_and_rows_and_then_nothing(
    terminal: Terminal,
) -> None:
    with terminal() as screen:
        with Live() as live:
            live.show(made_report(), HALF)
            shown = screen.read("32 MiB")
        for text in ("50%", "1:05 min left", "all-reduce gloo, 64 KiB", "13.6 ms", "2.47"):
            assert text in shown
        rest = screen.read("\x1b[?25h")[len(shown) :]
    assert rest.count("\x1b[2K") >= shown.count("\n")  # every line is wiped


def test_it_starts_no_thread(terminal: Terminal) -> None:
    before = threading.enumerate(), tasks()
    with terminal() as screen, Live() as live:
        live.show(made_report(), HALF)
        screen.read("32 MiB")
        assert (threading.enumerate(), tasks()) == before


@pytest.mark.parametrize(("columns", "lines"), [(80, 8), (30, 24), (20, 4), (200, 60)])
def test_it_is_cropped_to_the_terminal_with_the_newest_rows(
    terminal: Terminal, columns: int, lines: int
) -> None:
    report = made_report(made_series(), made_series("all-gather", "mpi"))
    with terminal(columns, lines) as screen, Live() as live:
        live.show(report, HALF)
        shown = screen.read("50%")
    assert shown.count("\n") < lines
    assert ("8 MiB" in shown) == (lines > 4 and columns > 20)
    assert shown.count("\n") <= NEWEST + 2
    assert (" 8 B" in shown) == (lines >= 24)


def test_what_changed_last_is_shown_last(terminal: Terminal, clock: list[float]) -> None:
    names = ("all-reduce", "all-gather")
    first, second = (made_series(name, rows=(made_row(8), made_row(32))) for name in names)
    again = replace(first, rows=(first.rows[0], replace(first.rows[1], wrong=7)))
    with terminal() as screen, Live() as live:
        live.show(made_report(first, second), HALF)
        before = screen.read("all-gather")
        clock[0] += INTERVAL
        live.show(made_report(again, second), HALF)
        drawn = screen.read("  7  ")[len(before) :]
    assert drawn.rindex("all-gather") < drawn.rindex("all-reduce")


def test_it_is_drawn_twice_a_second_at_most(terminal: Terminal, clock: list[float]) -> None:
    with terminal() as screen, Live() as live:
        for turn in range(300):
            clock[0] = 100 + turn / 200
            live.show(made_report(made_series(rows=())), Course(0.1, None, f"turn-{turn}."))
        shown = screen.read("turn-")
    assert 2 <= shown.count("turn-") <= 4


def test_a_forked_rank_neither_draws_nor_wipes(terminal: Terminal, clock: list[float]) -> None:
    with terminal() as screen, Live() as live:
        live.show(made_report(), HALF)
        shown = screen.read("32 MiB")
        clock[0] += 2 * INTERVAL
        child = os.fork()
        if not child:
            with suppress(BaseException):
                live.show(made_report(), HALF)
                live.__exit__(None, None, None)
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert screen.read() == shown


@pytest.mark.parametrize("kind", ["pipe", "dumb", "quiet"])
def test_where_nobody_sees_it_nothing_is_written(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with terminal() as screen:
        pipe = io.StringIO()
        if kind == "pipe":
            monkeypatch.setattr(sys, "stderr", pipe)
        if kind == "dumb":
            monkeypatch.setenv("TERM", "dumb")
        with Live(enabled=kind != "quiet") as live:
            live.show(made_report(), HALF)
        assert screen.read() == ""
        assert pipe.getvalue() == ""


def test_nothing_measured_yet_is_shown(terminal: Terminal) -> None:
    report = made_report(made_series(rows=()))
    with terminal() as screen, Live() as live:
        live.show(report, Course(0.0, None, "verifying"))
        assert "verifying" in screen.read("0%")
