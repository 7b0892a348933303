"""A trace played in place: with keys and a clock that the test turns."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pytest
from traces import paper

from distdemo.errors import Terminated
from distdemo.trace import view_keys as keys
from distdemo.trace.view_keys import Keys, TerminalKeys, pressed, split
from distdemo.trace.view_live import FASTEST, HINT, SECONDS, Player, play
from distdemo.view.console import output

RING = paper("all_reduce", "ring", 4, 4, real=True)


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Script(Keys):
    """One key each time that it is asked; for None the clock goes on instead."""

    def __init__(self, pressed: Sequence[str | None] = ()) -> None:
        self._pressed = list(pressed)
        self.time = 0.0

    def read(self, seconds: float) -> list[str]:
        found = self._pressed.pop(0) if self._pressed else None
        if found is None:
            self.time += seconds
        return [found] if found else []

    def now(self) -> float:
        return self.time


@pytest.fixture(autouse=True)
def able_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def played(script: Script, **more: object) -> str:
    screen = Screen()
    console = output(screen)
    console.width, console.height = 80, 40
    play(RING, console, 1.0, keys=nullcontext(script), **more)  # type: ignore[arg-type]  # ranks
    return screen.getvalue()


def test_it_ends_by_itself_when_every_round_stood_for_its_time() -> None:
    script = Script()
    text = played(script)
    assert script.time == pytest.approx(7 * SECONDS)
    places = [f"{place}/6" for place in range(7)]
    assert [text.index(place) for place in places] == sorted(text.index(p) for p in places)
    assert text.index("6/6") < text.index("Verified")


def test_keys_step_both_ways_and_leave() -> None:
    text = played(Script(["pause", "next", "next", "next", "back", "quit"]))
    assert "3/6" in text
    assert "4/6" not in text
    assert text.rindex("2/6") > text.index("3/6")
    assert "Verified" in text


def test_what_is_paused_waits() -> None:
    script = Script(["pause", *[None] * 100, "quit"])
    text = played(script)
    assert script.time > 2 * SECONDS
    assert "1/6" not in text


def test_the_cursor_comes_back_when_it_is_interrupted() -> None:
    class Interrupted(Script):
        def read(self, seconds: float) -> list[str]:
            raise KeyboardInterrupt

    screen = Screen()
    with pytest.raises(KeyboardInterrupt):
        play(RING, output(screen), 1.0, keys=nullcontext(Interrupted()))
    text = screen.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_without_a_terminal_all_rounds_are_printed() -> None:
    stream = io.StringIO()
    play(RING, output(stream), 1.0, keys=nullcontext(Script()))
    assert stream.getvalue().count("\nRound ") == 6
    assert "\x1b" not in stream.getvalue()


def test_of_more_ranks_than_lines_the_ends_are_shown() -> None:
    screen = Screen()
    console = output(screen)
    console.width, console.height = 80, 20
    report = paper("broadcast", "tree", 16, 1)
    play(report, console, 1.0, keys=nullcontext(Script(["quit"])))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).splitlines()
    rows = [line[:6] for line in lines[: lines.index(HINT)] if re.match("│ +[0-9]", line)]
    assert [int(row.strip("│ ")) for row in rows[:3]] == [0, 1, 2]
    assert int(rows[-1].strip("│ ")) == 15
    assert len(rows) == 7  # as many as there is room for


class TestPlayer:
    def test_speed_is_doubled_halved_and_bounded(self) -> None:
        player = Player(3, 1.0)
        player.act("faster")
        assert (player.speed, player.left) == (2.0, SECONDS / 2)
        for _ in range(20):
            player.act("faster")
        assert player.speed == FASTEST
        for _ in range(20):
            player.act("slower")
        assert player.speed == 1 / 16

    def test_steps_stop_at_both_ends_and_pause(self) -> None:
        player = Player(1, 1.0)
        player.act("back")
        assert (player.place, player.playing) == (0, False)
        player.act("next")
        player.act("next")
        assert (player.place, player.over) == (1, False)

    def test_restart_goes_on_playing(self) -> None:
        player = Player(3, 1.0)
        player.pass_by(SECONDS)
        assert player.place == 1
        player.act("restart")
        assert (player.place, player.playing) == (0, True)


class TestSplit:
    @pytest.mark.parametrize(
        ("typed", "asked"),
        [
            (" ", ["pause"]),
            ("nn", ["next", "next"]),
            ("\x1b[C\x1b[D", ["next", "back"]),
            ("\x1bOC", ["next"]),
            ("\x1b[1~q", ["restart", "quit"]),
            ("x\x1b[15~q", ["quit"]),
            ("+-", ["faster", "slower"]),
        ],
    )
    def test_keys(self, typed: str, asked: list[str]) -> None:
        assert split(typed) == (asked, "")

    def test_half_a_sequence_is_kept(self) -> None:
        assert split("n\x1b[") == (["next"], "\x1b[")


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal: ours, and the one that the program has."""
    main, side = pty.openpty()
    try:
        yield main, side
    finally:
        os.close(main)
        os.close(side)


def test_keys_come_one_by_one_and_unseen() -> None:
    with terminal() as (main, side):
        before = termios.tcgetattr(side)
        with TerminalKeys(side) as source:
            local = termios.tcgetattr(side)[3]
            assert not local & (termios.ICANON | termios.ECHO)
            assert local & termios.ISIG, "Ctrl-C would not interrupt"
            os.write(main, b" \x1b[C\x1b")
            assert source.read(10) == ["pause", "next"]
            os.write(main, b"[D")
            assert source.read(10) == ["back"]
            assert source.read(0) == []
        assert termios.tcgetattr(side) == before


def test_a_terminal_that_has_gone_ends_it() -> None:
    main, side = pty.openpty()
    with TerminalKeys(side) as source:
        os.close(main)
        assert source.read(10) == ["quit"]
    os.close(side)


def raised_within(number: signal.Signals, side: int) -> None:
    with pressed():
        assert not termios.tcgetattr(side)[3] & termios.ECHO
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_terminal_back(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(number)
    with terminal() as (_, side), os.fdopen(os.dup(side)) as stdin:
        before = termios.tcgetattr(side)
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr(keys, "has_terminal", lambda: True)  # it is not our controlling one
        with pytest.raises(Terminated):
            raised_within(number, side)
        assert termios.tcgetattr(side) == before
    assert signal.getsignal(number) == handler


def test_without_a_terminal_nobody_presses_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("q"))
    with pressed() as source:
        assert source.read(0) == []
