"""A trace in the terminal: what can be read off it, on any terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from traces import paper

from distdemo.launcher.records import Died, Stopped, Verdict, WorldReport
from distdemo.trace.algorithms import REGISTRY
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import TraceReport, WrongChunk
from distdemo.trace.view_cells import ASCII, UNICODE, numbered, spans
from distdemo.trace.view_frames import frames, telling
from distdemo.trace.view_rounds import trace_view

Draw = Callable[..., str]
DROP = Fault("drop", 1, 1)
LATE = WrongChunk(1, 2, 0, 1, 2, round=9)


def view(report: TraceReport, **more: object) -> Callable[[Console], RenderableType]:
    return lambda console: trace_view(report, console, **more)  # type: ignore[arg-type]  # ranks, every


def round_of(text: str, number: int) -> list[str]:
    """The lines of a round, up to the blank one."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"Round {number} of"))
    return lines[start : lines.index("", start)]


def row_of(lines: list[str], rank: int, bar: str = "│") -> list[str]:
    """The cells of a rank in a table."""
    rows = ([cell.strip() for cell in line.strip(bar).split(bar)] for line in lines if bar in line)
    return next(cells[1:] for cells in rows if cells[0] == str(rank))


@pytest.mark.parametrize(("encoding", "done"), [("utf-8", "all ✓"), ("ascii", "all ok")])
def test_what_rank_2_holds_complete_after_round_3_can_be_read_off(
    draw: Draw, encoding: str, done: str
) -> None:
    text = draw(view(paper("all_reduce", "ring", 4, 4, real=True)), encoding)
    cells = row_of(round_of(text, 3), 2, "│" if encoding == "utf-8" else "|")
    assert [done in cell for cell in cells] == [False, False, False, True]
    assert cells[3].startswith("+")
    assert cells[3].endswith("72")  # 3 + 13 + 23 + 33


def test_a_cell_says_whose_contributions_are_in_it_without_colour(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 4, 4)))
    assert row_of(round_of(text, 2), 0) == [
        *("█░░░ 0      0", "█░░░ 0      1", "+ █░██ 0 2 3 56", "█░░█ 0 3   36")
    ]


def test_arrows_that_combine_are_not_those_that_copy(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 4, 4)))
    assert round_of(text, 1)[1] == "  0 ═[0]═▶ 1   1 ═[1]═▶ 2   2 ═[2]═▶ 3   3 ═[3]═▶ 0"
    assert round_of(text, 4)[1] == "  0 ─[1]─▶ 1   1 ─[2]─▶ 2   2 ─[3]─▶ 3   3 ─[0]─▶ 0"
    plain = draw(view(paper("all_reduce", "ring", 4, 4)), "ascii")
    assert round_of(plain, 1)[1] == "  0 =[0]=> 1   1 =[1]=> 2   2 =[2]=> 3   3 =[3]=> 0"
    assert round_of(plain, 4)[1] == "  0 -[1]-> 1   1 -[2]-> 2   2 -[3]-> 3   3 -[0]-> 0"


@pytest.mark.parametrize("algorithm", REGISTRY, ids=lambda each: f"{each.op}-{each.name}")
@pytest.mark.parametrize(
    ("n", "columns", "encoding"), [(2, 60, "utf-8"), (5, 80, "utf-8"), (7, 40, "ascii")]
)
def test_every_algorithm_fits_every_terminal(
    draw: Draw, algorithm: Algorithm, n: int, columns: int, encoding: str
) -> None:
    report = paper(algorithm.op, algorithm.name, n, 3)
    text = draw(view(report), encoding, columns)  # asserts that no line is wider
    assert "?" not in re.sub("Source: .*?\n\n", "", text, flags=re.DOTALL)
    assert sum(line.startswith("Round ") for line in text.splitlines()) == len(report.rounds)


def test_eight_ranks_and_chunks_fit_80_columns_as_a_table(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 8, 8)))
    cells = row_of(round_of(text, 5), 2)
    assert cells == ["0–2", "1 2", "2", "2", "2", "+0–2 5–7", "0–2 6 7", "0–2 7"]


def test_parts_of_all_to_all_go_by_their_names_in_a_list(draw: Draw) -> None:
    lines = round_of(draw(view(paper("all_to_all", "bruck", 4, 1))), 1)
    assert lines[1].startswith("  0 ─[0→1 0→3]─▶ 1")
    assert lines[2] == "rank 0  0→0 ✓ (0)   0→2 (2)  ▸3→0 ✓ (30)  ▸3→2 (32)  gone: 0→1 0→3"
    plain = round_of(draw(view(paper("all_to_all", "bruck", 4, 1)), "ascii"), 1)
    assert "*3>0 ok (30)" in plain[2]


def test_too_many_chunks_for_a_table_are_listed(draw: Draw) -> None:
    lines = round_of(draw(view(paper("all_reduce", "ring", 16, 16))), 17)
    row = next(line for line in lines if line.startswith("rank 2 "))
    assert "▸1: all ✓" in row
    assert "complete: 1–3" in row


def test_where_nothing_is_reduced_a_list_says_what_is_held_not_that_it_is_complete(
    draw: Draw,
) -> None:
    text = draw(view(paper("all_to_all", "pairwise", 10, 1)))
    assert "rank 0  holds: 0→0 … 10 chunks" in text
    assert "complete:" not in text


def test_of_many_ranks_the_ends_are_shown_or_those_asked_for(draw: Draw) -> None:
    report = paper("broadcast", "tree", 32, 1)
    text = draw(view(report))
    assert "… 24 ranks more" in text
    assert "… 8 messages more" in round_of(text, 5)[2]
    some = round_of(draw(view(report, ranks=frozenset({5, 21}))), 5)
    assert some[1] == "  5 ─[0]─▶ 21   … 15 messages more"
    assert row_of(some, 21) == ["▸ 0 ✓ 0"]


def test_of_many_rounds_those_that_tell_something_are_shown(draw: Draw) -> None:
    report = paper("all_reduce", "ring", 24, 24)
    text = draw(view(report))
    told = [int(line.split()[1]) for line in text.splitlines() if " of 46" in line]
    assert told == [1, 2, 23, 24, 45, 46]
    assert "Rounds 3 to 22 are left out; --output FILE.txt has all." in text
    every = draw(view(report, every=True))
    assert sum(" of 46" in line for line in every.splitlines()) == 46


def test_the_round_in_which_something_goes_wrong_is_shown_among_many() -> None:
    report = replace(paper("all_reduce", "ring", 24, 24), wrong=(LATE,))
    shown = [each.number for each in telling(report, frames(report)) if not isinstance(each, int)]
    assert 9 in shown


def test_wrong_chunks_are_marked_and_named(draw: Draw) -> None:
    report = paper("all_reduce", "ring", 4, 4, fault=DROP, real=True)
    text = draw(view(report))
    assert "Spoiled on purpose: rank 1's message of round 1 is left out." in round_of(text, 1)
    flat = " ".join(text.split())
    assert "rank 0, chunk 1, element 0: got 53, expected 64; without rank 1" in flat
    assert "✗ Wrong: 4 chunks, 4 of 16 elements, on ranks 0, 1, 2, 3." in text
    assert "✗" in row_of(round_of(text, 6), 3)[1]
    assert "✗" not in row_of(round_of(text, 6), 3)[0]


def test_a_wrong_chunk_whose_number_is_right_is_told_as_such(draw: Draw) -> None:
    report = paper("all_reduce", "ring", 4, 4, fault=Fault("drop", 1, 0))  # its element is 0
    flat = " ".join(draw(view(report)).split())
    assert "rank 0, chunk 0: the number is right by chance; without rank 0" in flat


def test_what_is_there_twice_says_so(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 4, 4, fault=Fault("twice", 1, 2))))
    assert "0–3 +2 ✗" in text
    assert "too much of rank 2; wrong since round" in " ".join(text.split())


def test_a_right_run_says_what_was_verified_and_sent(draw: Draw) -> None:
    flat = " ".join(draw(view(paper("all_reduce", "ring", 4, 4, real=True))).split())
    assert "✓ Verified: 16 elements on 4 ranks right; 24 messages, 96 B in all, as the" in flat
    assert "500 to 530 µs, rank 3 slowest" in flat


def test_paper_promises_no_verification(draw: Draw) -> None:
    flat = " ".join(draw(view(paper("all_reduce", "ring", 4, 4))).split())
    assert "all_reduce · ring · sum · 4 ranks · on paper · float32[4]" in flat
    assert "✓ On paper: every chunk is complete where it has to be" in flat


def test_unequal_and_empty_chunks(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 4, 3)))
    assert "in 4 chunks: 3 of 1 element, 1 empty." in text
    assert row_of(round_of(text, 1), 0)[3] == "empty"
    assert "1 empty message not sent" in round_of(text, 1)[1]


def test_one_rank_has_no_rounds(draw: Draw) -> None:
    text = draw(view(paper("all_reduce", "ring", 1, 4, real=True)))
    assert "No rounds: with one rank there is nobody to send to." in text
    assert "✓ Verified: 4 elements on 1 rank right" in text


def test_a_world_that_failed_says_why(draw: Draw) -> None:
    report = paper("all_reduce", "ring", 2, 2, real=True)
    assert report.world is not None
    world = WorldReport(
        report.world.world,
        (Died(rank=0, signal=9), Stopped(rank=1)),
        Verdict("Rank 0 was killed.", "Signal 9.", "Look.", (0,)),
        *(0.1, "fork", "quick"),
    )
    for broken in (replace(report, world=world), replace(report, world=world, rounds=())):
        text = draw(view(broken))
        assert "Rank 0 was killed." in text
        assert "killed by signal 9" in text
        assert "Verified" not in text


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((), "none"),
        ((2,), "2"),
        ((0, 1), "0 1"),
        ((0, 1, 3), "0 1 3"),
        ((0, 1, 2, 5), "0–2 5"),
        ((0, 1, 1, 2, 2, 2), "0–2 +1 +2 +2"),
    ],
)
def test_contributions_in_words(ranks: tuple[int, ...], words: str) -> None:
    assert spans(ranks, UNICODE).plain == words
    assert numbered(ranks, ASCII) == words.replace("–", "-")


def test_every_number_has_its_ranks_colour() -> None:
    drawn = spans((0, 1, 3, 4, 5), UNICODE)
    styles = {drawn.plain[s.start : s.end]: s.style for s in drawn.spans if s.style != "dim"}
    assert styles == {"0": "cyan", "1": "yellow", "3": "green", "5": "bright_red"}
