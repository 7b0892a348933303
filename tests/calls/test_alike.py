"""Notes that all ranks write alike are judged once, with the result of reading each of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from calls.programs import MISTAKES, SIZE, WORLDS
from calls.recorded import recorded

from distdemo.calls.match import alike
from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import EndNote, Note, UnseenNote, note_line
from distdemo.calls.records import Finding, RankCall, SourceLine, TorchPart

N = 4


class Reading(Judge):
    """A judge that counts the notes that it reads."""

    count = 0

    def add(self, rank: int, note: Note, at: int = 0) -> None:
        self.count += 1
        super().add(rank, note, at)


@pytest.fixture(autouse=True)
def few_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let notes wait in worlds as small as these."""
    monkeypatch.setattr(alike, "HELD_RANKS", 2)


def definitions(rank: int) -> list[str]:
    """Return a rank's groups and calls: the world's, and those of its pair."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    lines = [f"G 0 0 gloo {list(range(N))}", f"G 1 0 gloo {pair}"]
    for number in range(8):
        is_async = number in (2, 3, 4, 5)
        by_torch = number in (4, 5)
        line = SourceLine("train.py", 10 + number, "step")
        if by_torch:
            line = replace(line, part=TorchPart("backward"), cpp=True)
        if number == 7:  # from another line on each rank
            line = replace(line, line=100 + rank)
        shape = (number + 1,)
        call = RankCall("all_reduce", line, "float32", shape, number + 1, "cpu", "sum")
        lines.append(note_line(replace(call, sync=not is_async), number, number % 2))
    return lines


def program(rank: int, seed: int, calls: int = 600) -> list[str]:
    """Return a rank's notes: the same choices on all ranks, except for what belongs to it alone."""
    common = random.Random(seed)
    own = random.Random(f"{seed} {rank}")
    others = " +" * (rank == seed % N)
    lines = definitions(rank)
    made = 0
    waiting: list[int] = []
    for _ in range(calls):
        number = common.randrange(8)
        step = f" {made // 10}" if number == 4 else ""
        lines.append(f"{number}{step}")
        if number not in (4, 5):
            lines.append(f"a{others}")
        if number in (2, 3, 4, 5):
            waiting.append(made)
        else:
            lines.append("r")
        made += 1
        while waiting and common.random() < 0.6:
            at = waiting.pop(common.randrange(len(waiting)))
            chance = common.random()
            if chance < 0.7:
                lines += [f"w {at}{others}", "r"]
            elif chance < 0.8:
                lines.append(f"n {at}")
        if own.random() < 0.02:
            lines.append(note_line(UnseenNote("tensors", (f"of {rank}",), SourceLine("x.py", 3))))
        if common.random() < 0.02:  # a thread of its own
            lines += ["@1 1", "@1 a", "@1 r", "@1 x"]
            made += 1
    return lines


def facts(judge: Judge) -> dict[str, Any]:
    """Return what a judge knows, without what differs between two readers of the same notes."""
    groups = {
        key: (
            group.agreed,
            group.internal,
            group.reached,
            [{*calls} for calls in group.open if calls],
            group.last,
            group.lines.rounds(SourceLine("train.py", 10, "step")),
            {
                (place.line, place.times, tuple(sorted(place.ranks)))
                for place in group.lines._places.values()
            },
            {(run, place.line) for p in group.lines._places.values() for run, place in p.followed},
            (group.lines._run, group.lines._latest),
            group.lines._last and group.lines._last.line,
        )
        for key, group in judge.matcher.groups.items()
    }
    ranks = [
        (
            state.call_count,
            {
                number: entry.position
                for number, entry in state.pending.items()
                if not (entry.call.source_line.part or entry.no_wait)
            },
            state.threads,
            state.others,
            state.waits.keys(),
            state.unconfirmed.keys(),
            state.last,
            state.ended,
            state.waited,
        )
        for state in judge.matcher.ranks
    ]
    calls = sorted(map(str, judge.calls()))
    return {"groups": groups, "ranks": ranks, "calls": calls, "gaps": {*judge.gaps()}}


def both(notes: list[list[str]], seed: int) -> tuple[Reading, Reading]:
    """Return a judge of notes that arrive together, and one that reads each rank's on its own."""
    size = len(notes)
    alone, together = Reading(size), Reading(size)
    texts = ["".join(f"{line}\n" for line in lines).encode() for lines in notes]
    for rank, text in enumerate(texts):
        alone.feed(rank, text)
        alone.read()
    chance = random.Random(seed)
    most = chance.choice((40, 200, 1000))
    while any(texts):
        for rank, text in enumerate(texts):
            end = chance.randrange(most // 2, most)
            together.feed(rank, text[:end])
            texts[rank] = text[end:]
        together.poll()
    together.read()
    return alone, together


def ends(judge: Judge) -> tuple[Finding | None, list[Finding], list[Finding]]:
    return judge.conclude(), judge.warnings(), judge.notes()


@pytest.mark.parametrize("seed", range(12))
def test_stretches_are_judged_like_single_notes(seed: int) -> None:
    notes = [program(rank, seed) for rank in range(N)]
    alone, together = both(notes, seed)
    assert facts(together) == facts(alone)
    assert together.count < alone.count
    assert ends(together) == ends(alone)


@pytest.mark.parametrize("seed", range(9))
def test_a_difference_after_stretches_is_found(seed: int) -> None:
    notes = [program(rank, seed) for rank in range(N)]
    wrong = seed % N
    for rank, lines in enumerate(notes):
        tail = ["0", "a", "r"] if rank != wrong else [["6", "a", "r"], ["f"], []][seed % 3]
        lines += [*tail, note_line(EndNote("returned"))]
    alone, together = both(notes, seed)
    assert ends(together) == ends(alone)
    assert ends(together)[0] is not None


def test_most_notes_of_a_long_run_are_judged_once() -> None:
    texts = ["".join(f"{line}\n" for line in definitions(rank)) for rank in range(N)]
    judge = Reading(N)
    for rank, text in enumerate(texts):
        judge.feed(rank, text.encode())
    for _ in range(100):
        for rank in range(N):
            judge.feed(rank, b"0\na\nr\n1\na\nr\n6\na\nr\n" * 10)
        assert judge.poll() is None
    assert judge.matcher.ranks[2].call_count == 3000
    assert judge.count == N * 9  # each call once


def test_notes_of_ranks_that_are_ahead_wait_for_the_others_but_not_for_long() -> None:
    judge = Reading(N)
    for rank in range(N):
        judge.feed(rank, "".join(f"{line}\n" for line in definitions(rank)).encode())
    judge.poll()
    for _ in range(1 + alike.HELD_POLLS):
        judge.feed(0, b"0\na\nr\n")
        judge.poll()
    assert judge.matcher.ranks[0].call_count > 0


@pytest.mark.parametrize("name", [*MISTAKES, *WORLDS])
def test_recorded_programs_are_judged_alike(name: str) -> None:
    notes = recorded("mistakes" if name in MISTAKES else "right")[name]
    assert len(notes) == SIZE
    alone, together = both(notes, 1)
    first, second = ends(alone), ends(together)
    assert (first[0] is None) == (second[0] is None)
    if first[0] is not None and second[0] is not None:
        assert (second[0].kind, second[0].ranks) == (first[0].kind, first[0].ranks)
    assert facts(together)["groups"].keys() == facts(alone)["groups"].keys()
