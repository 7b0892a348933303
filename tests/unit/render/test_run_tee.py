"""What ranks write, shown line by line as it comes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from distdemo.run import view_tee as module
from distdemo.run.view_tee import Tee
from distdemo.view.written import lines_of


@dataclass
class Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


Open = Callable[..., tuple[Tee, Callable[[], str]]]


@pytest.fixture
def opened() -> Open:
    def start(
        size: int = 2, only: frozenset[int] | None = None, encoding: str = "utf-8"
    ) -> tuple[Tee, Callable[[], str]]:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")

        def shown() -> str:
            return stream.buffer.getvalue().decode(encoding)

        return Tee(size, only, stream), shown

    return start


def test_whole_lines_at_once_and_never_two_ranks_in_one(opened: Open) -> None:
    tee, shown = opened()
    tee.wrote(0, b"begin")
    tee.wrote(1, b"one\ntwo\nthr")
    assert shown() == "1 │ one\n1 │ two\n"
    tee.wrote(0, b"ning\n")
    tee.wrote(1, b"ee\n")
    assert shown() == "1 │ one\n1 │ two\n0 │ beginning\n1 │ three\n"


def test_ends_without_a_newline_are_shown_at_the_end(opened: Open) -> None:
    tee, shown = opened()
    tee.wrote(1, b"last")
    tee.wrote(0, b"words")
    tee.flush()
    tee.flush()
    assert shown() == "0 │ words\n1 │ last\n"


def test_a_line_that_takes_long_is_shown_as_far_as_it_came(opened: Open, clock: Clock) -> None:
    tee, shown = opened()
    tee.wrote(0, b"waiting ...")
    clock.now += 0.2
    tee.wrote(1, b"a\n")
    assert shown() == "1 │ a\n"
    clock.now += 0.2
    tee.wrote(1, b"b\n")
    assert shown() == "1 │ a\n1 │ b\n0 │ waiting ...\n"
    tee.wrote(0, b" done\n")
    assert shown().endswith("0 │  done\n")


def test_its_own_end_is_put_to_a_line_however_late(opened: Open, clock: Clock) -> None:
    tee, shown = opened()
    tee.wrote(0, b"waiting ...")
    clock.now += 9
    tee.wrote(0, b" done\n")
    assert shown() == "0 │ waiting ... done\n"


def test_a_bar_is_shown_now_and_then(opened: Open, clock: Clock) -> None:
    tee, shown = opened()
    for percent in range(0, 101, 10):
        tee.wrote(0, f"\r{percent}%".encode())
        clock.now += 0.5
    tee.wrote(0, b"\n")
    assert shown().splitlines() == ["0 │ 40%", "0 │ 90%", "0 │ 100%"]


def test_characters_that_come_in_two_pieces(opened: Open) -> None:
    tee, shown = opened()
    for byte in "grün\n".encode():
        tee.wrote(0, bytes([byte]))
    tee.wrote(0, b"\xff\n")
    assert shown() == "0 │ grün\n0 │ \N{REPLACEMENT CHARACTER}\n"


def test_only_these_ranks(opened: Open) -> None:
    tee, shown = opened(12, frozenset({3, 11}))
    for rank in range(12):
        tee.wrote(rank, b"x\n")
    assert shown() == " 3 │ x\n11 │ x\n"


def test_a_stream_without_our_signs(opened: Open) -> None:
    tee, shown = opened(1, encoding="ascii")
    tee.wrote(0, "grün \x1b[31mrot\x1b[0m\n".encode())
    assert shown() == "0 | gr?n rot\n"


def test_colours_only_where_they_are_wanted(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    tee, shown = opened()
    tee.wrote(0, b"x\n")
    assert shown() == "\x1b[36m0 │ \x1b[0mx\n"
    monkeypatch.setenv("NO_COLOR", "1")
    tee, shown = opened()
    tee.wrote(0, b"x\n")
    assert shown() == "0 │ x\n"


def test_a_line_without_end_is_not_kept_for_ever(opened: Open) -> None:
    tee, shown = opened()
    tee.wrote(0, b"x" * 70_000)
    assert shown() == "0 │ " + "x" * 70_000 + "\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("1%\r2%\r\n", ["2%"]),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", ["link"]),
        ("\x1b(Bplain\x1b7", ["plain"]),
        ("a\u202eb\u2028c", ["a\\u202eb\\u2028c"]),
        ("\0", ["\\x00"]),
    ],
)
def test_lines_as_a_terminal_would_show_them_in_the_end(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines


def test_what_the_backend_prints_is_not_the_programs(opened: Open) -> None:
    tee, shown = opened()
    tee.wrote(0, b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected ")
    tee.wrote(0, b"peer ranks is : 1\n[Gloo] is what I say\n")
    assert shown() == "0 \u2502 [Gloo] is what I say\n"
