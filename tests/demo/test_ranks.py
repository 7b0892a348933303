"""Every op in every form on real ranks, compared with plain Python."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import assert_right, run_many
from strategies import FORMS, example, lengths, requests, right_over_gloo, splits

from distdemo import ops
from distdemo.ops.spec import OpSpec

pytestmark = pytest.mark.processes
NESTED: tuple[Any, ...] = (
    {"a": [1, {"b": None}], "ü": "雪"},
    [],
    "x" * 3000,
    -1.5,
    {"deep": [[[[]]]]},
    None,
)
"""Objects whose pickles have very different lengths."""


def all_right(size, cases):
    """Run all cases in one world, and compare the results with plain Python."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    cases = [specs for specs in cases if is_taken(specs[0])]
    assert cases
    results = run_many(size, cases)
    for specs, records in zip(cases, results, strict=True):
        assert_right(records, specs)
    return results


def is_taken(spec):
    op = ops.REGISTRY[spec.op]
    return spec.group_size >= op.smallest_world and right_over_gloo(op, spec)


def every_form(n):
    """Yield a spec of every form, blocking and, if possible, non-blocking."""
    for op, form in FORMS:
        if n >= op.smallest_world:
            spec = example(op, form, n)
            yield spec
            if "async_op" in op.takes and "async_op" not in form.lacks:
                yield replace(spec, async_op=True)


def uneven(n):
    """Yield specs with unequal lengths, some or all of them 0."""
    for rest in ((), (3,)):
        for sizes in (lengths(n), (0,) * n, (100, *(0,) * (n - 1))):
            shape = (max(sizes), *rest)
            yield OpSpec("all_gather", n, shape=shape, variant="uneven", sizes=sizes)
        for rows in (splits(n), ((0,) * n,) * n, ((60, *(0,) * (n - 1)),) * n):
            shape = (max(map(sum, rows)), *rest)
            cut = OpSpec("all_to_all", n, shape=shape, variant="single", splits=rows)
            yield from (cut, replace(cut, async_op=True))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_form_in_a_world_of_its_own(n):
    cases = list(every_form(n))
    even = [spec for spec in cases if not (spec.sizes or spec.splits or spec.objects)]
    cases += [replace(spec, shape=()) for spec in even if not ops.REGISTRY[spec.op].is_barrier]
    cases += [replace(spec, root=0) for spec in even if spec.root is not None]
    cases += uneven(n)
    texts = tuple(json.dumps(value) for value in NESTED[-n:])
    cases += [
        replace(example(op, form, n), objects_json=texts)
        for op, form in FORMS
        if form.name == "objects" and n >= op.smallest_world
    ]
    cases += [
        OpSpec("all_reduce", n, dtype, (9,), reduce_op, seed=7)
        for dtype in ("float32", "bfloat16", "int8")
        for reduce_op in ("sum", "min", "product")
    ]
    all_right(n, cases)


def test_every_form_in_groups():
    cases: list[tuple[OpSpec, ...]]
    cases = [(replace(spec, members=(0, 2, 3)),) for spec in every_form(3)]
    pairs = ((0, 2), (1, 4))
    late = OpSpec("barrier", 2, shape=(), straggler=1, straggler_delay_s=0.1)
    cases.append(tuple(replace(late, members=pair) for pair in pairs))
    cases += [tuple(replace(spec, members=pair) for pair in pairs) for spec in every_form(2)]
    one = OpSpec("all_gather", 2, shape=(1,), members=(0, 2), values=((7,), (8,)))
    cases.append((one, replace(one, members=(1, 4), values=((1,), (2,)))))
    records = all_right(5, cases)[-1]
    after = [
        [piece.values for piece in record.after.pieces] for record in records if record.takes_part
    ]
    assert after == [[(7,), (8,)], [(1,), (2,)]] * 2, "values of one group stay in it"
    places = [(record.group, record.group_rank) for record in records]
    assert places == [(0, None), (1, 0), (0, 1), (None, None), (1, 1)]


def test_large_tensors_do_not_deadlock_in_either_pattern():
    for n in (2, 5):
        cases = [
            OpSpec("p2p", n, shape=(300_000,), pattern=pattern, async_op=asked)
            for pattern in ("ring", "exchange")
            for asked in (False, True)
        ]
        results = run_many(n, [(spec,) for spec in cases])
        assert all(record.ok for records in results for record in records)


@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
@given(st.lists(requests(most=5), min_size=8, max_size=8))
def test_every_op_agrees_with_plain_python(asked):
    all_right(
        6,
        [replace(spec, members=spec.members or tuple(range(spec.group_size))) for _, spec in asked],
    )


def test_buffers_between_calls_are_reported():
    pair = OpSpec("p2p", 4, src=2, dst=0, pattern="pair", async_op=True)
    (ranks,) = all_right(4, [pair])
    receiver = {event.call: event for event in ranks[0].events}
    sender = {event.call: event for event in ranks[2].events}
    assert receiver["irecv"].buffer.pieces[0].values == (0, 1, 2, 3)
    assert receiver["irecv"].returned_s <= sender["isend"].called_s
    assert sender["isend"].returned_s <= receiver["wait"].called_s
    assert receiver["wait"].buffer.pieces[0].values == (20, 21, 22, 23)
    assert (ranks[1].events, ranks[1].takes_part) == ((), False)
