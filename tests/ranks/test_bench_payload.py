"""The data of a measurement on real ranks: bound calls, in place and out of place, verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from strategies import FORMS, example

from distdemo.bench import payload
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldSpec
from distdemo.ops.contract import Op, Undefined, handles
from distdemo.ops.spec import OpSpec

SIZES = (1, 7, 70_001)
"""Elements of a piece: one, an odd number, and more than a period."""
CALLS = 2
"""Of one bound call, each on fresh data."""

Case = tuple[Op, OpSpec]
Counts = tuple[int, int]


def cases(n: int) -> Iterator[Case]:
    """Every form with tensors that gloo takes, blocking and not, in place and not."""
    for op, form in FORMS:
        if form.name in ("objects", "uneven list") or op.meets or n < op.smallest_world:
            continue
        for place, numel in enumerate(SIZES):
            spec = sized(example(op, form, n, seed=5), numel)
            if "async_op" in op.takes - form.lacks:
                spec = replace(spec, async_op=place % 2 == 1)
            yield op, spec
            if op.has_both(spec):
                yield op, replace(spec, in_place=True)
                yield op, replace(spec, in_place=True, async_op=not spec.async_op)


def sized(spec: OpSpec, numel: int) -> OpSpec:
    """The same with so many elements a piece; in uneven ones, of all together about as many."""
    if spec.sizes or spec.splits:
        numel = -(-numel // 8)
    sizes = spec.sizes and tuple(size * numel for size in spec.sizes)
    splits = spec.splits and tuple(tuple(part * numel for part in row) for row in spec.splits)
    return replace(spec, shape=(numel,), sizes=sizes, splits=splits)


def verified(rank: Rank, todo: Sequence[Case]) -> list[list[Counts]]:
    """Collective: for each case what ``check`` says after each call."""
    return [each_call(rank.rank, op, spec) for op, spec in todo]


def each_call(rank: int, op: Op, spec: OpSpec) -> list[Counts]:
    """Collective: the call is bound once, and made on fresh data again and again."""
    buffers = payload.make(op, rank, spec, "cpu")
    call = op.bind(buffers, spec, None, async_op=spec.async_op)
    counts = []
    for seed in range(CALLS):
        fresh = replace(spec, seed=seed)
        payload.refill(op, rank, fresh, buffers)
        for work in handles(call()):
            work.wait()
        counts.append(payload.check(op, rank, fresh, buffers))
    return counts


def corrupted(rank: Rank, op: Op, spec: OpSpec, wrong: int) -> Counts:
    """Collective: rank 1's last ``wrong`` elements are altered on their way."""
    buffers = payload.make(op, rank.rank, spec, "cpu")
    op.run(buffers, spec, None, async_op=False)
    if rank.rank == 1:
        buffers.recv[-1][-wrong:] += 1
    return payload.check(op, rank.rank, spec, buffers)


def received(op: Op, rank: int, spec: OpSpec) -> int:
    """Elements that this rank gets, those of scratch left out."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0
    return sum(op.cut(each.ranks[0], each.piece, spec).numel for each in result)


def on_ranks(n: int, program: Callable[..., Any], *args: Any) -> list[Any]:
    """What the program returned on each rank of a world of gloo."""
    world = WorldSpec(n, start_method="fork", deadline=60, lazy=False)
    report = run_world(world, program, args)
    assert report.ok, report.verdict
    return [outcome.value for outcome in report.outcomes if isinstance(outcome, Returned)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_bound_call_is_right_as_often_as_it_is_made_in_place_or_not(n: int) -> None:
    todo = list(cases(n))
    assert {op.name for op, spec in todo if spec.in_place} == {
        "all_gather",
        "gather",
        "reduce_scatter",
        "scatter",
    }
    by_rank = on_ranks(n, verified, todo)
    for number, (op, spec) in enumerate(todo):
        for rank, found in enumerate(by_rank):
            elements = received(op, rank, spec)
            assert found[number] == [(elements, 0)] * CALLS, (op.name, spec, rank)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_corrupted_elements_are_counted_on_the_rank_that_holds_them(
    name: str, in_place: bool
) -> None:
    (op,) = {op for op, _ in FORMS if op.name == name}
    spec = OpSpec(
        name, 3, shape=(70_001,), variant="single", reduce_op="sum", in_place=in_place, seed=9
    )
    found = on_ranks(3, corrupted, op, spec, 5)
    elements = {"all_gather": 3 * 70_001, "reduce_scatter": 70_001}[name]
    assert found == [(elements, 0), (elements, 5), (elements, 0)]
