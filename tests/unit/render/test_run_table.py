"""What a program of the user's own printed and returned, as people read it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from distdemo.launcher.records import Died, Raised, Returned, Stopped, Verdict, WorldReport
from distdemo.run.records import Program, RunReport, Transcript, Value
from distdemo.run.view_table import entries_of, grouped, show_run, show_verdict, span
from distdemo.view.console import output

World = Callable[..., WorldReport]
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 3, in run\n    f()\nOSError: no\n'


@pytest.fixture
def made(world: World) -> Callable[..., RunReport]:
    def make(
        printed: Sequence[str],
        returned: Sequence[Any] = (),
        function: str = "run",
        **more: Any,
    ) -> RunReport:
        size = len(printed)
        fields: dict[str, Any] = {
            "program": Program("home/prog.py", "", function, ("3",)),
            "world_size": size,
            "backend": "gloo" if function else "",
            "device": "cpu" if function else "",
            "world": world(size),
            "transcripts": tuple(map(Transcript, printed)),
            "values": tuple(None if v is None else Value(repr(v), v) for v in returned),
            "versions": {"distdemo": "1.2.3"},
            **more,
        }
        return RunReport(**fields)

    return make


def drawn(
    report: RunReport,
    only: frozenset[int] | None = None,
    *,
    encoding: str = "utf-8",
    columns: int = 80,
    traceback: bool = False,
    quiet: bool = False,
) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = output(stream)
    console.width = columns
    if quiet:
        show_verdict(report, console, traceback=traceback)
    else:
        show_run(report, console, only, traceback=traceback)
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    assert "\x1b" not in text
    return str(text)


Made = Callable[..., RunReport]


def test_little_stands_in_one_table(made: Made) -> None:
    text = drawn(made(["hi\n", "ho\nhu\n"], [1, None]))
    assert text.splitlines()[:8] == [
        "prog.py:run · 2 ranks · gloo · cpu",
        "╭──────┬─────────┬──────────╮",
        "│ Rank │ Printed │ Returned │",
        "├──────┼─────────┼──────────┤",
        "│    0 │ hi      │ 1        │",
        "│    1 │ ho      │ —        │",
        "│      │ hu      │          │",
        "╰──────┴─────────┴──────────╯",
    ]
    assert "✓ Both ranks returned, in 250 ms." in text
    assert "Started by fork" in text
    assert "distdemo 1.2.3" in text


def test_a_whole_program_returns_nothing(made: Made) -> None:
    text = drawn(made(["hi\n"] * 3, function=""))
    assert text.startswith("prog.py · 3 ranks · run whole\n")
    own = made(["hi\n"], backend="", device="")
    assert drawn(own).startswith("prog.py:run · 1 rank · makes its own group\n")
    assert "Returned" not in text
    assert "✓ All 3 ranks came to the end, in 250 ms." in text


def test_nothing_printed_and_nothing_returned(made: Made) -> None:
    text = drawn(made([""], [None]))
    assert text.splitlines()[:2] == [
        "prog.py:run · 1 rank · gloo · cpu",
        "✓ The rank returned, in 250 ms.",
    ]


def test_long_lines_are_left_whole(made: Made) -> None:
    line = "word " * 60 + "end"
    text = drawn(made([line, line, "short", ""], [7] * 4))
    assert f"Ranks 0-1 each printed:\n{line}\n" in text
    assert "Rank 2 printed:\nshort\n" in text
    assert "Rank 3 printed nothing." in text
    assert "│    3 │ 7        │" in text


def test_many_lines_show_their_ends_unless_asked_for(made: Made) -> None:
    report = made(["".join(f"line {n}\n" for n in range(600)), "x"])
    text = drawn(report)
    assert "line 199\n… 100 lines left out: --only 0 shows them.\nline 300\n" in text
    whole = drawn(report, frozenset({0}))
    assert "left out" not in whole
    assert "line 250\n" in whole
    assert "Rank 1" not in whole


def test_what_was_not_kept_stands_in_a_block(made: Made) -> None:
    kept = Transcript("a\n[... 9 bytes left out ...]\nb\n", 9)
    text = drawn(made(["", ""], transcripts=(kept, Transcript())))
    assert "Rank 0 printed:\na\n[... 9 bytes left out ...]\nb\n" in text


def test_of_many_ranks_those_that_did_the_same_have_one_row(made: Made) -> None:
    report = made(["same"] * 40 + ["other"] + ["same"] * 23, [1] * 64)
    text = drawn(report)
    assert "│ 0-39, 41-63 │ same    │ 1        │" in text
    assert "│          40 │ other   │ 1        │" in text


def test_many_ranks_that_all_differ_are_summed_up(made: Made) -> None:
    report = made([f"rank {rank}" for rank in range(64)])
    text = drawn(report)
    shown = [rank for rank in range(64) if f"│ rank {rank} " in text]
    assert shown == [0, 1, 2, 3, 60, 61, 62, 63]
    assert "…" in text
    asked = drawn(report, frozenset({7, 30}))
    assert [rank for rank in range(64) if f"│ rank {rank} " in asked] == [7, 30]
    long = drawn(made(["x" * 90 + str(rank) for rank in range(64)]))
    assert "… 56 outputs more: --only RANKS shows them." in long


@pytest.mark.parametrize("columns", [20, 40, 60, 80])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_every_terminal(made: Made, columns: int, encoding: str) -> None:
    report = made(["ä" * 30, "b"], [{"key": [1.5] * 20}, "text"])
    text = drawn(report, encoding=encoding, columns=columns)
    assert ("ä" * 30 if encoding != "ascii" else "?" * 30) in text
    assert "[1.5, 1.5" in text
    assert ("✓" if encoding == "utf-8" else "ok") in text


def test_control_characters_break_nothing(made: Made) -> None:
    printed = "a\x1b[31mred\x1b[0m\x07\x1b]0;title\x07b\r\n 1%\r 99%\r100%\n\ttab\x1b[2J"
    text = drawn(made([printed, ""], ["v\x9b1m", None]))
    assert "│    0 │ ared\\x07b   │" in text
    assert "│      │ 100%        │" in text
    assert "│      │         tab │" in text


def test_a_failure_shows_what_was_printed_and_the_users_lines(made: Made, world: World) -> None:
    outcomes = (
        Returned(rank=0),
        Raised(rank=1, type="OSError", message="no", traceback="all" + TRACE, excerpt=TRACE),
        Stopped(rank=2),
    )
    verdict = Verdict(
        "Rank 1 raised OSError: no",
        "It had got as far as: started.",
        "The traceback below is from that rank.",
        (1,),
        (2,),
        "all" + TRACE,
        TRACE,
    )
    report = made(["before\n", "", ""], world=world(3, outcomes, verdict))
    text = drawn(report)
    places = [text.index(part) for part in ("before", "Rank 1 raised", TRACE, "--traceback adds")]
    assert places == sorted(places)
    assert "allTraceback" not in text
    assert "✓" not in text
    assert "allTraceback" in drawn(report, traceback=True)
    assert "--traceback adds" not in drawn(report, traceback=True)
    assert drawn(report, quiet=True).startswith("Rank 1 raised OSError: no\n")


def test_a_death_has_no_traceback(made: Made, world: World) -> None:
    verdict = Verdict("Rank 0 ended with exit code 3.", "Why.", "Try.", (0,))
    report = made(["", "x"], world=world(2, (Died(rank=0, exit_code=3), Stopped(rank=1)), verdict))
    text = drawn(report)
    assert "exit code 3" in text
    assert "Traceback" not in text
    assert report.ok is False


def test_an_interrupted_run_shows_what_there_was(made: Made) -> None:
    report = made(["so far\n", ""], world=None)
    text = drawn(report)
    assert "so far" in text
    assert "✗ Interrupted. All ranks are gone" in text
    assert drawn(report, quiet=True).startswith("✗ Interrupted.")


def test_span() -> None:
    assert span([0]) == "0"
    assert span([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_grouped_by_output_keeps_who_failed(made: Made, world: World) -> None:
    outcomes = (Returned(rank=0), Stopped(rank=1))
    report = made(["x", "x"], world=world(2, outcomes, Verdict("a", "b", "c", (1,))))
    (both,) = grouped(entries_of(report), by_value=False)
    assert (both.ranks, both.failed) == ((0, 1), True)
    assert len(grouped(entries_of(report), by_value=True)) == 2
