"""Every op in every form on real ranks: right against plain Python, whatever is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as also
from running import assert_right, run, run_many, shown
from strategies import FORMS, example, lengths, requests, splits

from distdemo import ops
from distdemo.backends.gloo import Gloo
from distdemo.demo.rank import run_op
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.ops.spec import OpSpec

NESTED: tuple[Any, ...] = (
    {"a": [1, {"b": None}], "ü": "雪"},
    [],
    "x" * 3000,
    -1.5,
    {"deep": [[[[]]]]},
    None,
)
"""Objects whose pickles are far from equally long."""


def all_right(size, cases):
    """Run them all in one world of this size, and hold each against plain Python."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    cases = [specs for specs in cases if is_taken(specs[0])]
    assert cases
    found = run_many(size, cases)
    for specs, records in zip(cases, found, strict=True):
        assert_right(records, specs)
    return found


def is_taken(spec):
    op = ops.REGISTRY[spec.op]
    return spec.group_size >= op.smallest_world and Gloo().refuses(op, spec) is None


def every_form(n):
    """A request for every form, blocking and (where it can be) not."""
    for op, form in FORMS:
        spec = example(op, form, max(n, op.smallest_world))
        if spec.group_size == n:
            yield spec
            if "async_op" in op.takes and "async_op" not in form.lacks:
                yield replace(spec, async_op=True)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_form_in_a_world_of_its_own(n):
    cases = list(every_form(n))
    all_right(n, [*cases, *(replace(spec, inference=True) for spec in cases)])


GROUPS: dict[str, tuple[int, list[tuple[int, ...]]]] = {
    "1,3": (4, [(1, 3)]),
    "0,2-3": (5, [(0, 2, 3)]),
    "split 2": (4, [(0, 1), (2, 3)]),
    "split %2": (6, [(0, 2, 4), (1, 3, 5)]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_every_form_in_groups(name):
    size, groups = GROUPS[name]
    cases = [
        tuple(replace(spec, members=group) for group in groups)
        for spec in every_form(len(groups[0]))
    ]
    all_right(size, cases)


def test_what_was_given_to_one_group_stays_in_it():
    one = OpSpec("all_gather", 2, shape=(1,), members=(0, 2), values=((7,), (8,)))
    other = replace(one, members=(1, 3), values=((1,), (2,)))
    (records,) = all_right(4, [(one, other)])
    assert [[piece.values for piece in record.after.pieces] for record in records] == [
        [(7,), (8,)],
        [(1,), (2,)],
        [(7,), (8,)],
        [(1,), (2,)],
    ]
    assert [(record.group, record.group_rank) for record in records] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
    ]


@pytest.mark.parametrize("n", [2, 5])
def test_scalars(n):
    scalars = [
        replace(spec, shape=())
        for spec in every_form(n)
        if spec.sizes is None and spec.splits is None and not spec.objects
    ]
    all_right(n, scalars)


def test_every_root_of_every_form():
    rooted = [each for each in FORMS if "root" in each[0].takes]
    all_right(3, [example(*each, 3, root=root) for each in rooted for root in range(3)])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_uneven_tensors_and_parts(n):
    gather, exchange = ops.REGISTRY["all_gather"], ops.REGISTRY["all_to_all"]
    sizes = [lengths(n), (0,) * n, (100, *(0,) * (n - 1)), tuple(range(n))]
    rows = [splits(n), ((0,) * n,) * n, ((2,) * n,) * n, ((60, *(0,) * (n - 1)),) * n]
    plain = [
        OpSpec(gather.name, n, shape=(max(each), *rest), variant="uneven", sizes=each)
        for each in sizes
        for rest in ((), (3,))
    ]
    cut = [
        OpSpec(
            exchange.name,
            n,
            shape=(max(map(sum, each)), *rest),
            variant="single",
            splits=each,
            async_op=asked,
        )
        for each in rows
        for rest in ((), (3,))
        for asked in (False, True)
    ]
    all_right(n, [*plain, *cut])


def test_the_steps_of_uneven_tensors_are_told():
    spec = OpSpec("all_gather", 3, shape=(7,), variant="uneven", sizes=(3, 0, 7))
    (records,) = all_right(3, [spec])
    steps = records[1].steps
    names = [step.name for step in steps]
    assert names == ["all_gather the sizes", "pad to the largest", "all_gather", "trim"]
    assert steps[0].buffer.pieces[0].values == (3, 0, 7)
    assert [piece.shape for piece in steps[2].buffer.pieces] == [(7,)] * 3
    assert [piece.shape for piece in steps[3].buffer.pieces] == [(3,), (0,), (7,)]
    assert steps[2].sent_bytes == 7 * 4


@pytest.mark.parametrize("n", [2, 3, 5])
def test_nested_and_unequal_objects(n):
    texts = tuple(json.dumps(each) for each in NESTED[-n:])
    cases = [
        replace(example(op, form, n), objects_json=texts)
        for op, form in FORMS
        if form.name == "objects"
    ]
    for specs, records in zip(cases, all_right(n, cases), strict=True):
        sizes = {piece.pickled_bytes for record in records for piece in record.before.pieces}
        assert len(sizes) > 1, specs


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_large_tensors_do_not_deadlock_in_either_pattern(n):
    shape = (300_000,)
    cases = [
        OpSpec("p2p", n, shape=shape, pattern=pattern, async_op=asked)
        for pattern in ("ring", "exchange")
        for asked in (False, True)
    ]
    found = run_many(n, [(spec,) for spec in cases])
    assert all(record.verification.ok for records in found for record in records)


def test_a_batch_returns_before_the_data_has_to_be_there():
    spec = OpSpec("p2p", 3, pattern="exchange", async_op=True)
    (records,) = all_right(3, [spec])
    for record in records:
        returned, waited = record.events
        assert (returned.what, waited.what) == ("batch_isend_irecv returned", "wait returned")
        assert not waited.unchanged
    last = max(record.events[0].at_s for record in records)
    assert all(record.events[1].at_s >= last for record in records)


def test_a_seed_changes_the_values_and_not_the_verdict():
    cases = [
        OpSpec("all_reduce", 3, dtype, (9,), reduce_op, seed=seed)
        for dtype in ("float32", "bfloat16", "int8")
        for reduce_op in ("sum", "min", "product")
        for seed in (0, 7)
    ]
    all_right(3, cases)


# ---------------------------------------------------------------------------------- the barrier


def attendances(result):
    return [record.attendance for record in result.ranks if record.attendance is not None]


@pytest.mark.parametrize("monitored", [False, True])
@pytest.mark.parametrize("late", [0, 2])
def test_nobody_leaves_a_barrier_before_the_straggler_has_come(late, monitored):
    spec = OpSpec(
        "barrier", 3, shape=(), straggler=late, straggler_delay_s=0.1, monitored=monitored
    )
    result = run(ops.REGISTRY["barrier"], spec)
    assert result.ok
    came = attendances(result)
    last = max(each.arrived_s for each in came)
    assert min(each.arrived_s for each in came) == 0
    assert all(each.left_s >= last for each in came)
    assert [each.present for each in came] == [3, 3, 3]


def test_groups_meet_apart():
    spec = OpSpec("barrier", 2, shape=(), straggler=1, straggler_delay_s=0.05)
    specs = (replace(spec, members=(0, 3)), replace(spec, members=(1, 2)))
    result = run(ops.REGISTRY["barrier"], *specs)
    assert result.ok
    assert [each.present for each in attendances(result)] == [2] * 4


def test_a_monitored_barrier_names_the_rank_that_does_not_come():
    late = OpSpec("barrier", 3, shape=(), monitored=True, straggler=2, straggler_delay_s=60)
    spec = replace(late, monitor_timeout_s=0.3)
    done = run_world(WorldSpec(3, lazy=False), run_op, (ops.REGISTRY["barrier"], (spec,)))
    assert not done.ok
    assert done.verdict is not None
    assert done.verdict.what.startswith("Rank 2 never came to the barrier")
    assert done.verdict.ranks == (2,)


# ------------------------------------------------------------------------------- anything


@settings(
    max_examples=24,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(requests(most=5))
@also((PointToPoint(), OpSpec("p2p", 5, shape=(5,), pattern="ring")))
def test_every_op_agrees_with_plain_python(request):
    op, spec = request
    result = run(op, spec)
    assert result.ok, result.world.verdict or result.ranks
    assert_right(result.ranks, (spec,))


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (1, 0), (2, 0)])
def test_both_calls_of_a_nonblocking_pair_return_before_the_data_has_to_be_there(src, dst):
    spec = OpSpec("p2p", group_size=3, src=src, dst=dst, pattern="pair", async_op=True)
    result = run(PointToPoint(), spec)
    assert result.ok
    receiver = {event.what: event for event in result.ranks[dst].events}
    sender = {event.what: event for event in result.ranks[src].events}
    assert receiver["irecv returned"].unchanged
    assert receiver["irecv returned"].at_s <= sender["isend returned"].at_s
    assert sender["isend returned"].at_s <= receiver["wait returned"].at_s
    assert not receiver["wait returned"].unchanged
    idle = 3 - src - dst
    assert result.ranks[idle].events == ()
    assert not result.ranks[idle].takes_part


def test_an_async_op_times_the_launch_and_the_wait():
    result = run(AllReduce(), OpSpec("all_reduce", group_size=2, reduce_op="sum", async_op=True))
    for record in result.ranks:
        assert record.launch_s is not None
        assert record.wait_s is not None
        assert record.time_s == record.launch_s + record.wait_s


def test_the_buffers_of_the_other_ranks_are_undefined_after_a_reduce():
    result = run(Reduce(), OpSpec("reduce", group_size=3, reduce_op="sum", root=1, fill=1))
    assert [record.after.undefined for record in result.ranks] == [True, False, True]
    assert shown(result.ranks[1].after) == [[3.0] * 4]
    assert result.ranks[0].verification.checked == 0
