from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.records import (
    Died,
    Lost,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Verdict,
    Where,
)
from distdemo.view.failure import LONGEST, _shortened, error_text, failure

Make = Callable[..., Any]

ENTERED = Phase(2, "entered all_reduce")
CAUSE = Verdict(
    "Rank 1 raised ValueError: [no] such batch",
    "It had got as far as: entered all_reduce.",
    "The traceback below is from that rank.",
    (1,),
    (0, 2, 3, 4),
    "Traceback (most recent call last):\n  line 1\nValueError: [no] such batch\n",
)
OUTCOMES = (
    Raised(
        rank=0,
        phase=ENTERED,
        at=0.2,
        type="RuntimeError",
        message="Connection closed by peer\nmore",
        traceback="",
        consequence=True,
    ),
    Raised(
        rank=1,
        phase=ENTERED,
        at=0.1,
        type="ValueError",
        message="[no] such batch",
        traceback=CAUSE.traceback,
        output="one\ntwo\nthree\nfour\nfive\nsix\n",
    ),
    Died(rank=2, phase=ENTERED, at=0.3, signal=9),
    Stopped(rank=3, phase=ENTERED, at=0.4),
    TimedOut(rank=4, phase=ENTERED, at=0.5, where=Where("all_reduce", "train.py:12 in step")),
    Returned(rank=5, at=0.6),
    Died(rank=6, at=0.7, exit_code=3),
)


def test_an_error_of_ours_is_three_lines() -> None:
    assert error_text(UsageError("What.", "Why.", "Try.")).plain == "What.\nWhy.\nTry."
    assert error_text(UsageError("What.")).plain == "What."


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_verdict_comes_first_and_then_how_every_rank_ended(
    encoding: str, world: Make, draw: Make
) -> None:
    report = world(7, OUTCOMES, CAUSE)
    text = draw(lambda console: failure(report, console), encoding)
    lines = text.splitlines()
    assert lines[0] == "Rank 1 raised ValueError: [no] such batch"
    assert lines[1] == CAUSE.why
    assert lines[2] == "Add --traceback to see where."
    assert "lost its peer: RuntimeError:" in text
    assert "killed by signal 9" in text
    assert "stopped with the others" in text
    assert "waiting in all_reduce at train.py:12" in text
    assert "ended with exit code 3" in text
    assert "not started" in text
    assert "Traceback" not in text


def test_the_rank_at_fault_heads_the_table(world: Make, draw: Make) -> None:
    text = draw(lambda console: failure(world(7, OUTCOMES, CAUSE), console))
    assert text.index("ValueError: [no] such batch", 50) < text.index("lost its peer")


def test_the_last_lines_that_the_rank_at_fault_wrote_are_shown(world: Make, draw: Make) -> None:
    text = draw(lambda console: failure(world(7, OUTCOMES, CAUSE), console))
    assert "The last that rank 1 wrote:" in text
    assert "  six" in text
    assert "  one" not in text


def test_the_traceback_is_shown_where_it_was_asked_for(world: Make, draw: Make) -> None:
    report = world(7, OUTCOMES, CAUSE)
    text = draw(lambda console: failure(report, console, traceback=True))
    assert "Traceback (most recent call last):" in text
    assert "The traceback below is from that rank." in text
    assert "Add --traceback" not in text


def test_a_deadlock_is_told_without_a_culprit(world: Make, draw: Make) -> None:
    verdict = Verdict(
        "Timed out: Ranks 0, 1 wait for each other.", "Why.", "A deadlock.", (), (0, 1)
    )
    late = tuple(TimedOut(rank=rank, phase=ENTERED, where=Where("send", "")) for rank in (0, 1))
    text = draw(lambda console: failure(world(2, late, verdict), console))
    assert text.count("waiting in send") == 2


def test_of_many_ranks_the_one_at_fault_is_shown_and_the_rest_is_counted(
    world: Make, draw: Make
) -> None:
    outcomes = tuple(
        Died(rank=200, at=0.1, signal=9) if rank == 200 else Stopped(rank=rank)
        for rank in range(256)
    )
    verdict = Verdict("Rank 200 was killed by SIGKILL.", "Why.", "Hint.", (200,), tuple(range(200)))
    text = draw(lambda console: failure(world(256, outcomes, verdict), console))
    assert "killed by signal 9" in text
    assert "240 ranks more, none of them at fault" in text
    assert len(text.splitlines()) < 30


def test_ranks_at_fault_that_are_left_out_are_not_called_innocent(world: Make, draw: Make) -> None:
    outcomes = tuple(
        Raised(rank=rank, at=0.1, type="ValueError", message="no", traceback="")
        for rank in range(20)
    )
    verdict = Verdict("Rank 0 raised ValueError: no", "Why.", "Hint.", tuple(range(20)))
    text = draw(lambda console: failure(world(20, outcomes, verdict), console))
    assert "4 ranks more, 4 of them at fault" in text


def test_a_world_that_did_not_fail_has_no_failure_to_draw(world: Make, draw: Make) -> None:
    with pytest.raises(ValueError, match="did not fail"):
        draw(lambda console: failure(world(2), console))


def test_a_lost_rank_is_told_with_its_host_and_why(world: Make, draw: Make) -> None:
    verdict = Verdict("Rank 1: no sign of life on node-b for 8 s.", "Why.", "Try.", (1,), (0,))
    outcomes = (
        Stopped(rank=0, phase=ENTERED, at=9.0),
        Lost(rank=1, at=8.9, why="no sign of life on node-b for 8 s", hint="Try."),
    )
    afar = replace(world(2, outcomes, verdict), hosts=("node-a", "node-b"))
    text = draw(lambda console: failure(afar, console))
    head = next(line for line in text.splitlines() if "Rank" in line and "What" in line)
    assert head.index("Rank") < head.index("Host") < head.index("What happened")
    row = next(line for line in text.splitlines() if line.startswith("│    1 │"))
    assert " node-b " in row
    assert "no sign of life" in row
    assert "unknown" in row
    assert "Host" not in draw(lambda console: failure(world(2, outcomes, verdict), console))


def test_a_long_text_is_cut_between_two_words() -> None:
    assert set(_shortened("some words " * 100).split()) == {"some", "words", "..."}
    assert len(_shortened("word " * 100)) <= LONGEST + 4
    assert _shortened("x" * 500) == "x" * LONGEST + " ..."
    assert _shortened("short") == "short"
