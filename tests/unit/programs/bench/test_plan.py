from __future__ import annotations

from dataclasses import replace

import pytest
from benches import series, spec

from distdemo.bench import plan
from distdemo.bench.plan import Visit


def two():
    return spec(series(), series("broadcast", root=0, sizes=(8, 1 << 20, 1 << 26)))


def test_the_first_launch_verifies_every_size_once():
    found = plan.first(two(), "gloo")
    assert [(v.series, v.point) for v in found.visits] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert all(v.verify and v.launch == 0 and v.iterations == plan.TRIAL for v in found.visits)
    assert found.harness
    assert not found.limits
    assert plan.first(two(), "mpi").visits == ()


def test_later_launches_go_through_the_sizes_in_turn_up_and_down():
    counts = {(0, 0): 5, (0, 1): 0, (1, 0): 3}
    up, down = plan.later(two(), 1, counts), plan.later(two(), 2, counts)
    assert [(v.series, v.point, v.iterations) for v in up.visits] == [(0, 0, 5), (1, 0, 3)]
    assert [v.launch for v in down.visits] == [2, 2]
    assert [(v.series, v.point) for v in down.visits] == [(1, 0), (0, 0)]
    assert not any(v.verify for v in up.visits)


def test_large_sizes_warm_up_less_unless_it_was_asked_for():
    found = [v.warmup for v in plan.first(two(), "gloo").visits]
    assert found[0] > found[3] > found[4] > 0
    asked = replace(two(), warmup=0)
    assert {v.warmup for v in plan.first(asked, "gloo").visits} == {0}


@pytest.mark.parametrize(("total", "launches"), [(20, 6), (6, 6), (7, 3), (1, 1), (2, 6)])
def test_the_shares_of_the_launches_add_up(total, launches):
    parts = [plan.share(total, launch, launches) for launch in range(1, launches + 1)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


def test_how_many_launches_there_are_is_settled_where_it_was_asked_for():
    assert plan.fixed_launches(spec(iters=None)) is None
    assert plan.fixed_launches(spec(iters=3)) == 3
    assert plan.fixed_launches(spec(iters=100)) == plan.SPREAD_OVER
    assert plan.fixed_launches(spec(iters=100, launches=2)) == 2


def test_as_many_iterations_as_fit_into_a_piece_of_time():
    assert plan.count_for(1e-3, 0.05) == 50
    assert plan.count_for(10.0, 0.05) == plan.FEW
    assert plan.count_for(1e-9, 0.05) == plan.MANY
    assert plan.count_for(0.0, 0.05) == plan.FEW


def test_all_in_one_world_has_blocks_that_stand_for_launches():
    asked = spec(series(sizes=(8, 1 << 24)), iters=10)
    found = plan.at_once(asked, "gloo").visits
    timing = [v for v in found if v.launch]
    assert [v.verify for v in found[:2]] == [True, True]
    assert {v.launch for v in timing} == set(range(1, plan.SPREAD_OVER + 1))
    assert [sum(v.iterations for v in timing if v.point == point) for point in (0, 1)] == [10, 10]
    assert [v.point for v in timing[:4]] == [0, 1, 1, 0]


def test_in_one_world_the_ranks_find_out_how_many_iterations_fit_into_the_budget():
    found = plan.at_once(spec(series(sizes=(8, 64)), iters=None, budget=8.0), "gloo").visits
    timing = [v for v in found if v.launch]
    assert all(v.iterations == 0 and v.seconds == 8.0 / (8 * 2) for v in timing)
    assert len(timing) == 8 * 2


def test_a_plan_is_the_same_after_it_was_told_to_another_process():
    whole = plan.at_once(two(), "gloo")
    assert plan.plan_of(plan.order_of(whole)) == whole
    assert isinstance(plan.plan_of(plan.order_of(whole)).visits[0], Visit)


def test_a_visit_is_named_by_op_form_place_and_size():
    asked = series("all_gather", sizes=(65_536,))
    assert plan.name(asked, 0) == "all-gather single of 65,536 B"
    both = replace(asked, in_place=True, both=True)
    assert plan.name(both, 0) == "all-gather single in place of 65,536 B"
    assert plan.name(series("barrier", sizes=(0,)), 0) == "barrier plain"
