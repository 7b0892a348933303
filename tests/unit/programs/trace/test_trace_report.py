"""The report of a run, from what ranks noted; and the same on paper. No rank is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdemo.demo.records import Verification
from distdemo.ops.spec import OpSpec
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.board import contributions
from distdemo.trace.picture import on_one_clock
from distdemo.trace.plans import plan_for
from distdemo.trace.report import on_paper
from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import Moment, RankTrace, TraceSpec
from distdemo.trace.truth import untrue

RIGHT = Verification(ok=True, checked=1)
RING = TraceSpec(OpSpec("all_reduce", 3, shape=(3,), reduce_op="sum"), "ring")


def noted(rank, *values, start=None, moments=()):
    """What a rank says that it held."""
    return RankTrace(rank, start or {}, values, moments, 0, 0, 0, RIGHT)


def test_on_paper_all_ranks_hold_what_the_op_asks_for():
    found = on_paper(RING)
    *_, last = found.states()
    assert found.ok
    assert found.world is None
    assert found.handed == ()
    assert [sorted(held) for held in last] == [[0, 1, 2]] * 3
    assert all(cell.complete and cell.wanted for held in last for cell in held.values())
    assert {cell.values for held in last for cell in held.values()} == {()}
    assert [each.step.number for each in found.rounds] == [1, 2, 3, 4]


def test_on_paper_a_fault_is_found_by_what_is_missing():
    found = on_paper(replace(RING, fault=Fault("drop", 1, 0)))
    assert not found.ok
    first = found.wrong[0]
    assert (first.rank, first.chunk, first.round) == (1, 0, 1)
    assert first.missing == (0,)
    assert (first.element, first.got, first.expected) == (None, None, None)


def test_on_paper_a_chunk_that_comes_to_the_wrong_rank_is_missed_where_it_belongs():
    spec = TraceSpec(
        OpSpec("scatter", 3, shape=(1,), root=0), "flat", fault=Fault("neighbour", 1, 0)
    )
    found = on_paper(spec)
    wrong = [(each.rank, each.chunk, each.missing) for each in found.wrong]
    assert wrong == [(1, 1, (0,))]
    *_, last = found.states()
    assert sorted(last[2]) == [1, 2]
    assert not last[2][1].wanted


def test_empty_chunks_are_never_wrong():
    spec = replace(RING, op=replace(RING.op, shape=(1,)), fault=Fault("drop", 1, 0))
    assert {each.chunk for each in on_paper(spec).wrong} == {0}


def test_moments_count_from_the_first_rank_of_a_machine():
    early = noted(0, {}, moments=(Moment(10.0, 11.0),))
    late = noted(1, {}, moments=(Moment(10.5, 12.0),))
    assert on_one_clock([early, late]) == [(Moment(0.0, 1.0), Moment(0.5, 2.0))]


def test_moments_of_each_host_count_from_its_own_first():
    early = noted(0, {}, moments=(Moment(10.0, 11.0),))
    other = noted(1, {}, moments=(Moment(900.0, 902.0),))
    assert on_one_clock([early, other], ["a", "b"]) == [(Moment(0.0, 1.0), Moment(0.0, 2.0))]


# ------------------------------------------------------------------ numbers against the schedule


def pair(dtype, reduce_op, start, then):
    """What is untrue of two ranks that exchange all they have, in one chunk."""
    op = OpSpec("all_reduce", 2, dtype=dtype, shape=(len(start[0]),), reduce_op=reduce_op)
    plan = plan_for(TraceSpec(op, "doubling"))
    traces = [
        noted(rank, {0: after}, start={0: before})
        for rank, (before, after) in enumerate(zip(start, then, strict=True))
    ]
    found = list(untrue(op, plan, list(plan.steps()), traces))
    return [(each.rank, each.element, each.got, each.expected, each.round) for each in found]


@pytest.mark.parametrize(
    ("dtype", "reduce_op", "start", "after"),
    [
        ("float32", "sum", ((1.0, 2.0), (10.0, 20.0)), (11.0, 22.0)),
        ("int8", "sum", ((100, 1), (100, 2)), (-56, 3)),
        ("bool", "sum", ((True, False), (True, False)), (True, False)),
        ("int32", "bxor", ((5, 1), (3, 1)), (6, 0)),
        ("float32", "max", ((0.1, 2.0), (0.3, 1.0)), (0.3, 2.0)),
        ("complex64", "product", ((1j, 2 + 0j), (1j, 3 + 0j)), (-1 + 0j, 6 + 0j)),
        ("float32", "avg", ((1.0, 2.0), (2.0, 4.0)), (1.5, 3.0)),
    ],
)
def test_numbers_that_the_schedule_makes_are_true(dtype, reduce_op, start, after):
    assert pair(dtype, reduce_op, start, (after, after)) == []
    strange = (after[0], not after[1] if dtype == "bool" else after[1] + 1)
    wanted = [(1, 1, strange[1], after[1], 1)]
    assert pair(dtype, reduce_op, start, (after, strange)) == wanted


@pytest.mark.parametrize(
    ("dtype", "start", "after"),
    [
        ("bfloat16", ((256.0,), (1.0,)), (256.0,)),  # 257 is not among its numbers
        ("float32", ((0.1,), (0.2,)), (0.30000001192092896,)),
        ("float32", ((float("nan"),), (0.2,)), (float("nan"),)),
        ("bool", (("byte 3",), (True,)), (True,)),
    ],
)
def test_numbers_that_may_have_been_rounded_are_not_judged(dtype, start, after):
    assert pair(dtype, "sum", start, (after, after)) == []


def test_what_was_never_filled_is_not_judged():
    op = OpSpec("broadcast", 3, shape=(1,), root=0)
    spec = TraceSpec(op, "chain", chunks=1, fault=Fault("drop", 1, 0))
    plan = plan_for(spec)
    steps = list(on_paper(spec).rounds)
    assert [len(each.step.transfers) for each in steps] == [0, 1]
    nan = float("nan")
    traces = [
        noted(0, {}, {}, start={0: (1.0,)}),
        noted(1, {}, {}),
        noted(2, {}, {0: (nan,)}),
    ]
    assert list(untrue(op, plan, [each.step for each in steps], traces)) == []


def test_the_start_of_a_plan_without_rounds_is_also_its_end():
    spec = replace(RING, op=replace(RING.op, group_size=1))
    found = on_paper(spec)
    assert found.rounds == ()
    assert [cell.complete for cell in found.start[0]] == [True]
    assert contributions(plan_of(plan_for(spec).algorithm, 1, 3)).held == ({0: (0,)},)
