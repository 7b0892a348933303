"""The report of a run on real ranks: what was there after each round, and what was wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
from running import Numbered
from tracings import spec_of, world

from distdemo.launcher.local import run_world
from distdemo.launcher.records import Returned
from distdemo.trace.report import report
from distdemo.trace.run import trace
from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import TraceSpec

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


def traced(specs):
    """The reports of these runs, all in one world."""
    specs = tuple(specs)
    done = run_world(world(specs[0].op.world_size), trace_each, (specs,))
    assert done.ok, done.verdict
    return [report(spec, _only(done, number)) for number, spec in enumerate(specs)]


def trace_each(rank, specs):
    """Collective: one trace after the other."""
    return [trace(cast("Rank", Numbered(rank, number)), spec) for number, spec in enumerate(specs)]


def _only(done, number):
    """The world as if it had run this one alone."""
    outcomes = (o for o in done.outcomes if isinstance(o, Returned))
    return replace(done, outcomes=tuple(replace(o, value=o.value[number]) for o in outcomes))


SCHEMES = ("naive", "aggregator", "ring")
RING = TraceSpec(spec_of("all_reduce", 4, 4), "ring")
FAULTS = (Fault("drop", 2, 1), Fault("neighbour", 3, 1), Fault("twice", 1, 1))


@cache
def reports():
    """Runs of four ranks, by what they are for."""
    large = {name: TraceSpec(spec_of("all_reduce", 4, 1 << 20), name) for name in SCHEMES}
    faults = {fault.kind: replace(RING, fault=fault) for fault in FAULTS}
    others = {
        "small": RING,
        "avg": TraceSpec(spec_of("reduce", 4, 6, "avg", root=2), "tree"),
        "premul": TraceSpec(spec_of("all_reduce", 4, 2, "premul_sum"), "naive"),
        "moved": TraceSpec(spec_of("scatter", 4, 2, root=1), "tree"),
        "harmless": replace(RING, fault=Fault("neighbour", 2, 1)),
        "by chance": TraceSpec(
            spec_of("all_reduce", 4, 4, "max"), "ring", fault=Fault("twice", 1, 1)
        ),
        "absent": TraceSpec(spec_of("scatter", 4, 2), "tree", fault=Fault("drop", 2, 2)),
    }
    wanted = large | faults | others
    return dict(zip(wanted, traced(wanted.values()), strict=True))


def test_the_three_schemes_hand_over_what_their_formulas_say():
    size = 4 << 20
    totals = {"naive": 12 * size, "aggregator": 6 * size, "ring": 6 * size}
    for name, total in totals.items():
        found = reports()[name]
        assert found.ok
        assert sum(found.handed) == total
        assert found.handed == found.counts.sent
        assert all(each.same for each in found.checks)
    assert [max(reports()[name].handed) / size for name in SCHEMES] == [3, 3, 1.5]


def test_the_report_holds_what_was_there_after_every_round():
    found = reports()["small"]
    states = [
        [[cell.values[0] for cell in held.values()] for held in state] for state in found.states()
    ]
    assert states[0] == [[10 * rank + place for place in range(4)] for rank in range(4)]
    assert states[-1] == [[60, 64, 68, 72]] * 4
    rank_2 = list(found.states())[3][2]
    assert [cell.chunk for cell in rank_2.values() if cell.complete] == [3]
    assert rank_2[3].ranks == (0, 1, 2, 3)
    assert rank_2[3].values == (72.0,)
    assert all(cell.wanted for cell in rank_2.values())


def test_moments_are_counted_from_the_first_rank_that_began():
    rounds = reports()["small"].rounds
    assert len(rounds) == 6
    assert min(moment.began for moment in rounds[0].moments) == 0
    for rank in range(4):
        moments = [each.moments[rank] for each in rounds]
        assert all(moment.began < moment.ended for moment in moments)
        assert all(a.ended <= b.began for a, b in pairwise(moments))


def test_a_rank_without_a_message_is_not_busy():
    for each in reports()["moved"].rounds:
        busy = {end for transfer in each.step.transfers for end in (transfer.src, transfer.dst)}
        took = [moment.ended - moment.began for moment in each.moments]
        assert [rank for rank in range(4) if took[rank] > 0] == sorted(busy)


def test_what_is_handed_on_is_gone():
    found = reports()["moved"]
    *_, last = found.states()
    assert [sorted(held) for held in last] == [[0], [1], [2], [3]]
    assert [held[rank].values for rank, held in enumerate(last)] == [
        (10.0 * rank, 10.0 * rank + 1) for rank in range(4)
    ]


def test_an_average_is_divided_after_the_last_round_and_the_report_says_so():
    found = reports()["avg"]
    *_, last = found.states()
    assert found.ok
    assert last[2][0].values == (15.0, 16.0, 17.0, 18.0)
    assert "divides its result by 4" in found.notes[0]
    assert last[0][0].values != (15.0, 16.0, 17.0, 18.0)


def test_premul_sum_multiplies_before_the_first_round_and_the_report_says_so():
    found = reports()["premul"]
    assert found.ok
    assert found.start[3][0].values == (60.0, 62.0)
    assert "multiplies what it holds by 2" in found.notes[0]


@pytest.mark.parametrize(
    ("kind", "chunk", "began", "missing", "extra"),
    [
        ("drop", 0, (2, 2), (0, 1), ()),
        ("neighbour", 3, (2, 3), (0, 1, 3), ()),
        ("twice", 1, (2, 1), (), (1,)),
    ],
)
def test_a_wrong_ring_is_caught_with_rank_and_chunk(kind, chunk, began, missing, extra):
    found = reports()[kind]
    assert found.world is not None
    assert found.world.ok
    assert not found.ok
    assert [each.ok for each in found.verifications] == [False] * 4
    assert {each.chunk for each in found.wrong} == {chunk}
    assert sorted(each.rank for each in found.wrong) == [0, 1, 2, 3]
    assert (found.wrong[0].rank, found.wrong[0].round) == began
    right = (60.0, 64.0, 68.0, 72.0)[chunk]
    for each in found.wrong:
        assert (each.element, each.expected) == (0, right)
        assert each.got != right
        assert (each.missing, each.extra) == (missing, extra)


def test_a_fault_that_does_no_harm_is_said_to_do_none():
    found = reports()["harmless"]
    assert found.ok
    assert found.notes[0].startswith("This fault does no harm")
    assert "on ranks 2, 3." in found.notes[0]


def test_numbers_that_are_right_by_chance_do_not_hide_a_wrong_schedule():
    found = reports()["by chance"]
    assert all(each.ok for each in found.verifications)
    assert not found.ok
    assert {(each.chunk, each.extra) for each in found.wrong} == {(1, (1,))}
    assert all(each.got == each.expected for each in found.wrong)
    assert "right by chance" in found.notes[0]


def test_a_chunk_that_never_came_is_said_not_to_be_there():
    (wrong,) = reports()["absent"].wrong
    assert (wrong.rank, wrong.chunk, wrong.element, wrong.got) == (3, 3, None, None)
    assert wrong.missing == (0,)
    assert wrong.round == 2


def test_a_run_whose_numbers_are_not_what_the_schedule_says_is_not_shown_as_if_they_were():
    done = run_world(world(4), trace, (RING,))
    outcome = done.outcomes[3]
    assert isinstance(outcome, Returned)
    values = list(outcome.value.values)
    assert list(values[1]) == [1]
    values[1] = {1: (7.0,)}
    lied = replace(outcome, value=replace(outcome.value, values=tuple(values)))
    found = report(RING, replace(done, outcomes=(*done.outcomes[:3], lied)))
    assert not found.ok
    (wrong,) = found.wrong
    assert (wrong.rank, wrong.chunk, wrong.round, wrong.got) == (3, 1, 2, 7.0)
    assert "Rank 3 held 7.0 in chunk 1 after round 2" in found.notes[0]


def test_of_a_world_that_failed_there_is_no_picture():
    done = run_world(world(2), leaving, (replace(RING, op=spec_of("all_reduce", 2, 4)),))
    found = report(replace(RING, op=spec_of("all_reduce", 2, 4)), done)
    assert not found.ok
    assert found.rounds == ()
    assert found.start == ()
    assert found.counts.rounds == 2


def leaving(rank, spec):
    """Rank 1 gives up before the first round."""
    if rank.rank == 1:
        raise ValueError("gave up")
    return trace(rank, spec)
