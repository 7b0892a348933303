from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from strategies import FORMS, example, name_of

from distdemo.demo.holdings import Attendance, Holding, Mismatch, Piece, Step, Thing, Verification
from distdemo.demo.view_op_table import op_table
from distdemo.ops.spec import OpSpec

Make = Callable[..., Any]
SPECS = [example(op, form, 4) for op, form in FORMS]


def values_of(spec: OpSpec, made: Any) -> set[str]:
    """Every number that a rank holds before or after, as text."""
    holdings = [each for record in made.ranks for each in (record.before, record.after)]
    pieces = [piece for holding in holdings for piece in holding.pieces]
    return {f"{number:g}" for piece in pieces if isinstance(piece, Piece) for number in piece.head}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_every_form_is_drawn_in_80_columns(
    spec: OpSpec, encoding: str, imagined: Make, draw: Make
) -> None:
    text = draw(lambda console: op_table(imagined(spec), console), encoding)
    assert text.startswith(spec.op)
    assert "4 ranks" in text
    assert "Verified" in text


@pytest.mark.parametrize("columns", [20, 40])
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_a_narrow_terminal_shows_every_rank_and_its_values(
    spec: OpSpec, columns: int, imagined: Make, draw: Make
) -> None:
    short = replace(spec, shape=(1,)) if spec.sizes is None and spec.splits is None else spec
    made = imagined(spec if spec.objects else short)
    text = draw(lambda console: op_table(made, console), columns=columns)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("Rank ")] == [f"Rank {r}" for r in range(4)]
    shown = set(text.replace("[", " ").replace("]", " ").split())
    assert {value for value in values_of(spec, made) if columns == 40} <= shown
    assert text.count("Verified ") == 4


def test_the_title_names_the_form_the_group_and_the_lengths(imagined: Make, draw: Make) -> None:
    def title(spec: OpSpec) -> str:
        text = draw(lambda console: op_table(imagined(spec), console), columns=200)
        return str(text.splitlines()[0])

    gather = OpSpec("all_gather", 3, shape=(7,), variant="uneven", sizes=(3, 0, 7))
    assert "uneven" in title(gather)
    assert "lengths 3,0,7" in title(gather)
    assert "single" in title(OpSpec("all_gather", 3, variant="single"))
    assert "objects" in title(OpSpec("broadcast", 3, shape=(), objects=True, root=0))
    assert "exchange" in title(OpSpec("p2p", 3, pattern="exchange"))
    assert "monitored" in title(OpSpec("barrier", 3, shape=(), monitored=True))
    assert "inference mode" in title(OpSpec("broadcast", 3, root=0, inference=True))


def test_a_group_is_told_with_both_numbers_of_its_root(
    record: Make, report: Make, world: Make, draw: Make
) -> None:
    spec = OpSpec("broadcast", 2, shape=(2,), root=1, members=(1, 3))
    records = [record(rank, group_rank={1: 0, 3: 1}.get(rank)) for rank in range(4)]
    made = report(spec, records, world=world(4))
    text = draw(lambda console: op_table(made, console), columns=120)
    assert "root 1 of the group, rank 3 of the world" in text
    assert "group 1,3" in text
    assert text.count("✓ as was") == text.count("none") == 2
    assert "Ranks outside the group make no call" in text


def test_several_groups_have_letters(record: Make, report: Make, world: Make, draw: Make) -> None:
    one = OpSpec("broadcast", 2, shape=(2,), root=0, members=(0, 2))
    specs = (one, replace(one, members=(1, 3)))
    records = [record(rank, group_rank=rank // 2, group=rank % 2) for rank in range(4)]
    made = report(one, records, world=world(4), specs=specs)
    text = draw(lambda console: op_table(made, console), columns=120)
    assert "2 groups of 2 ranks" in text
    assert "root 0 of each group" in text
    assert "A is ranks 0,2; B is ranks 1,3" in text
    assert all(f" {name} " in text for name in ("A 0", "B 0", "A 1", "B 1"))


def test_a_barrier_tells_who_came_last_and_moves_nothing(imagined: Make, draw: Make) -> None:
    text = draw(lambda console: op_table(imagined(OpSpec("barrier", 3, shape=())), console))
    assert "nobody was let go before all had come" in text
    assert "Last to come: rank 2, 2.00 ms after the first." in text
    assert text.count("✓ all had come") == 3
    assert "Moves" not in text
    assert "Before" not in text


def test_who_was_let_go_too_early_is_told(record: Make, report: Make, draw: Make) -> None:
    miss = Verification(ok=False, checked=1, wrong=1, mismatches=(Mismatch(0, (), 1, 2),))
    early = record(0, attendance=Attendance(0.0, 0.1, 1), verification=miss)
    fine = record(1, attendance=Attendance(0.2, 0.3, 2), verification=Verification(True, 1))
    made = report(OpSpec("barrier", 2, shape=()), [early, fine])
    text = draw(lambda console: op_table(made, console))
    assert "✗ too early" in text
    assert "rank 0 was let go when 1 of 2 had come" in text
    assert "✗ Wrong: 1 of 2 ranks were let go too early, on rank 0." in text


def test_objects_are_shown_with_the_bytes_of_their_pickles(
    record: Make, report: Make, draw: Make
) -> None:
    spec = OpSpec("all_gather", 2, shape=(), objects=True)
    thing = Holding((Thing({"a": [1]}, 25, 0),))
    made = report(spec, [record(rank, before=thing, after=thing) for rank in range(2)])
    text = draw(lambda console: op_table(made, console))
    assert text.count('{"a": [1]}') == 4
    assert "25 B" in text
    assert "objects came as they were sent" in text
    assert "every pickle padded to the largest" in " ".join(text.split())


def test_a_wrong_object_is_told_with_both(record: Make, report: Make, draw: Make) -> None:
    spec = OpSpec("broadcast", 1, shape=(), root=0, objects=True)
    miss = Verification(ok=False, checked=1, wrong=1, mismatches=(Mismatch(0, (), "[1]", "[2]"),))
    thing = Holding((Thing([1], 20, 0),))
    made = report(spec, [record(0, before=thing, after=thing, verification=miss)])
    text = draw(lambda console: op_table(made, console))
    assert "rank 0, got [1], expected [2]" in text
    assert "Wrong: 1 of 1 objects" in text


def test_steps_stand_one_below_the_other(record: Make, report: Make, draw: Make) -> None:
    def steps(rank: int) -> tuple[Step, ...]:
        holds = Holding((Piece((1,), (rank + 7,)),), listed=True)
        return Step("pad to the largest", holds, 0), Step("all_gather", holds, 28)

    spec = OpSpec("all_gather", 2, shape=(2,), variant="uneven", sizes=(2, 1))
    made = report(spec, [record(rank, steps=steps(rank)) for rank in range(2)])
    text = draw(lambda console: op_table(made, console))
    assert text.index("Step by step") < text.index("1 pad to the largest")
    assert text.index("1 pad to the largest") < text.index("2 all_gather")
    assert text.count("28 B") == 2
