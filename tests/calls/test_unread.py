"""Judge calls from C++ that only torch's flight recorder has, and those that nobody read."""

from __future__ import annotations

from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import EndNote, note_line
from distdemo.calls.records import PartialCall, RankCall, SourceLine

GROUP = "G 0 0 nccl [0, 1]"
HOOKED = note_line(RankCall("all_reduce", SourceLine("train.py", 7, "main"), dtype="float32"), 0, 0)
FROM_CPP = note_line(PartialCall("broadcast", SourceLine(), dtype="float32"), 1, 0)
FROM_CPP = FROM_CPP.replace("C 1", "K 1", 1)
EXITED = note_line(EndNote("exited"))
RETURNED = note_line(EndNote("returned"))


def judged(*ranks: list[str]) -> Judge:
    judge = Judge(2)
    for rank, lines in enumerate(ranks):
        judge.feed(
            rank, "".join(f"{line}\n" for line in [GROUP, HOOKED, FROM_CPP, *lines]).encode()
        )
    judge.conclude({})
    return judge


def test_a_rank_that_leaves_before_its_recorder_is_read_is_not_blamed() -> None:
    calls = ["@65535 1"] * 3
    judge = judged([*calls, "o", RETURNED], [calls[0], EXITED])
    assert judge.finding is None
    assert [gap.what for gap in judge.gaps()] == ["lost"]


def test_a_rank_whose_recorder_was_read_is_blamed() -> None:
    calls = ["@65535 1"] * 3
    judge = judged([*calls, "o", RETURNED], [calls[0], "o", EXITED])
    assert judge.finding is not None
    assert (judge.finding.kind, judge.finding.ranks) == ("absent", (1,))
    assert judge.gaps() == ()


def test_a_call_whose_place_was_never_told_is_a_gap() -> None:
    judge = judged(["0 ~", "a", "r", RETURNED], ["0 ~", "a", "r", RETURNED])
    assert judge.finding is None
    assert [gap.what for gap in judge.gaps()] == ["lost"]


def test_the_recorders_wait_says_nothing_of_other_threads() -> None:
    judge = judged(["0", "a +", "@65535 1", "@65535 w 1"], [])
    assert judge.matcher.ranks[0].others
