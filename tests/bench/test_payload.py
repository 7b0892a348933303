"""The data of a measurement: its values, its verification, and bound calls on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from strategies import FORMS, example, right_over_gloo

from distdemo import ops
from distdemo.bench.rank import check, refill
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import WorldSpec
from distdemo.ops import values
from distdemo.ops.buffers import laid_out
from distdemo.ops.contract import Buffers, Op, Undefined, handles
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import PERIODS, element, period, value_rule

USUAL, OTHER = PERIODS
TENSORS = [each for each in FORMS if each[1].name != "objects" and not each[0].is_barrier]
LONG = 2 * USUAL + 777  # two periods and a rest


def make(op: Op, rank: int, spec: OpSpec) -> Buffers:
    buffers = laid_out(op, rank, spec, "cpu")
    refill(op, rank, spec, buffers)
    return buffers


def done(op: Op, rank: int, spec: OpSpec) -> Buffers:
    """Return the buffers that the op should produce, computed per element without a period."""
    buffers = make(op, rank, spec)
    result = op.result(rank, spec)
    for source, target in zip(
        () if isinstance(result, Undefined) else result, buffers.recv, strict=True
    ):
        pieces = [row(op, giver, source.piece, spec) for giver in source.ranks]
        total = torch.stack(pieces).sum(dim=0) if source.reduced else pieces[0]
        if spec.reduce_op == "avg":
            total = total / len(pieces)
        target.copy_(total.reshape(target.shape))
    return buffers


def row(op: Op, rank: int, piece: int, spec: OpSpec) -> torch.Tensor:
    """Return the values of a piece, computed per element by the rule in ``bench.rank``."""
    cut = op.cut(rank, piece, spec)
    positions = (cut.start + torch.arange(cut.numel)) % period(spec)
    values: torch.Tensor = element(value_rule(op, spec), torch.tensor(cut.label), positions)
    return values.to(torch.float64)


def all_of(spec: OpSpec, **changes: Any) -> tuple[Op, OpSpec]:
    return ops.REGISTRY[spec.op], replace(spec, **changes)


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize(
    "spec",
    [
        OpSpec("all_reduce", 3, reduce_op="sum"),
        OpSpec("reduce_scatter", 2, variant="single", reduce_op="avg"),
        OpSpec("scatter", 2, root=1, dtype="uint8"),
        OpSpec("all_gather", 2, variant="list", dtype="bool"),
        OpSpec("all_to_all", 2, variant="single", dtype="complex128"),
    ],
    ids=lambda spec: f"{spec.op} {spec.dtype}",
)
def test_every_element_depends_on_label_and_position_in_the_period(
    spec: OpSpec, seed: int | None
) -> None:
    for numel in (1, USUAL, LONG):
        op, spec = all_of(spec, shape=(numel,), seed=seed)
        assert numel % period(spec), "two parts of a row would be equal"
        for rank in range(spec.group_size):
            buffers = done(op, rank, spec)
            if buffers.send is not buffers.recv:
                for piece, tensor in enumerate(buffers.send):
                    assert torch.equal(tensor, row(op, rank, piece, spec).to(tensor.dtype)), numel
            checked, wrong = check(op, rank, spec, buffers)
            assert (checked, wrong) == (sum(each.numel() for each in buffers.recv), 0), numel


# ----------------------------------------------------------------------------- verification


def test_a_single_wrong_element_is_found_wherever_it_is() -> None:
    for name, dtype, reduce_op in (
        ("broadcast", "float32", None),
        ("broadcast", "bool", None),
        ("all_reduce", "float64", "sum"),
        ("all_reduce", "bfloat16", "sum"),
        ("all_reduce", "int8", "max"),
    ):
        op, spec = all_of(OpSpec(name, 1, dtype, (LONG,), reduce_op=reduce_op, root=0, seed=3))
        for where in (0, USUAL - 1, USUAL, LONG - 1):
            buffers = make(op, 0, spec)
            assert check(op, 0, spec, buffers) == (LONG, 0)
            width = buffers.recv[0].element_size()
            buffers.recv[0].view(-1).view(torch.uint8)[where * width] ^= 1
            assert check(op, 0, spec, buffers) == (LONG, 1), (name, dtype, where)


def test_every_wrong_element_is_counted() -> None:
    op, spec = all_of(OpSpec("all_gather", 3, shape=(LONG,), variant="list", seed=3))
    buffers = done(op, 1, spec)
    buffers.recv[0][:10] = float("nan")
    buffers.recv[1][:] += 1
    buffers.recv[2][USUAL - 5 : USUAL + 5] = -1
    assert check(op, 1, spec, buffers) == (3 * LONG, 10 + LONG + 10)


@pytest.mark.parametrize("seed", [None, 3])
def test_misplaced_elements_are_found(seed: int | None) -> None:
    op, spec = all_of(OpSpec("all_gather", 2, shape=(2 * LONG,), variant="list", seed=seed))
    for shift in (1, 8, 1 << 14, 1 << 16, 1 << 17, LONG // 2):
        buffers = done(op, 0, spec)
        buffers.recv[1].copy_(buffers.recv[1].roll(shift))
        assert check(op, 0, spec, buffers)[1] > LONG, shift
    one, other = (each.clone() for each in done(op, 0, spec).recv)
    buffers.recv[0].copy_(other)  # another rank's data
    buffers.recv[1].copy_(one)
    assert check(op, 0, spec, buffers)[1] > 1.99 * LONG


def test_unwritten_buffers_are_wrong_everywhere() -> None:
    for op, form in TENSORS:
        spec = example(op, form, 3, seed=4)
        for rank in range(0 if op.is_in_place(spec) else 3):
            checked, wrong = check(op, rank, spec, make(op, rank, spec))
            assert wrong == checked == sum(map(torch.numel, make(op, rank, spec).recv)), spec


def test_moved_data_must_match_bit_for_bit() -> None:
    op, spec = all_of(OpSpec("broadcast", 1, "float64", (LONG,), root=0))  # it counts from zero
    buffers = make(op, 0, spec)
    assert buffers.recv[0][0] == 0
    buffers.recv[0][0] = -0.0
    assert check(op, 0, spec, buffers) == (LONG, 1)


def test_a_reduction_that_rounds_is_compared_with_its_bound() -> None:
    op, spec = all_of(OpSpec("all_reduce", 3, shape=(LONG,), reduce_op="avg", seed=5))
    for off, wrong in ((1, 0), (1 << 12, LONG)):
        buffers = done(op, 0, spec)
        buffers.recv[0].view(torch.int32).add_(off)  # units in the last place
        checked, found = check(op, 0, spec, buffers)
        assert checked == LONG
        assert found == pytest.approx(wrong, abs=LONG // 1000)  # a zero steps to almost nothing


# ------------------------------------------------------------------------------------ real ranks

SIZES = (1, 3_001)
"""Elements per piece: one, and more than a short period."""
CALLS = 2
"""Number of times that a bound call is called, each on fresh data."""

Case = tuple[Op, OpSpec]
Counts = tuple[int, int]


def cases(n: int) -> Iterator[Case]:
    """Yield every form with tensors that gloo supports, blocking and not, in place and not."""
    for op, form in FORMS:
        if form.name == "objects" or op.is_barrier or n < op.smallest_world:
            continue
        for index, numel in enumerate(SIZES):
            spec = sized(example(op, form, n, seed=5), numel)
            if not right_over_gloo(op, spec):
                continue
            if "async_op" in op.takes - form.lacks:
                spec = replace(spec, async_op=index % 2 == 1)
            yield op, spec
            if op.has_both(spec):
                yield op, replace(spec, in_place=True)
                yield op, replace(spec, in_place=True, async_op=not spec.async_op)


def sized(spec: OpSpec, numel: int) -> OpSpec:
    """Return the spec with this number of elements per piece, or about that in all if uneven."""
    if spec.sizes or spec.splits:
        numel = -(-numel // 8)
    sizes = spec.sizes and tuple(size * numel for size in spec.sizes)
    splits = spec.splits and tuple(tuple(part * numel for part in row) for row in spec.splits)
    return replace(spec, shape=(numel,), sizes=sizes, splits=splits)


def verified(rank: Rank, todo: Sequence[Case]) -> list[list[Counts]]:
    """Return the counts of ``check`` after each call, per case. Collective."""
    return [each_call(rank.rank, op, spec) for op, spec in todo]


def each_call(rank: int, op: Op, spec: OpSpec) -> list[Counts]:
    """Bind the call once and call it on fresh data each time. Collective."""
    buffers = make(op, rank, spec)
    call = op.bind(buffers, spec, None, async_op=spec.async_op)
    counts = []
    for seed in range(CALLS):
        fresh = replace(spec, seed=seed)
        refill(op, rank, fresh, buffers)
        for work in handles(call()):
            work.wait()
        counts.append(check(op, rank, fresh, buffers))
    return counts


def received(op: Op, rank: int, spec: OpSpec) -> int:
    """Return the number of elements that this rank receives, without scratch."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0
    return sum(op.cut(each.ranks[0], each.piece, spec).numel for each in result)


def test_a_bound_call_is_right_every_time_in_place_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "PERIODS", (997, 991))
    todo = list(cases(3))
    assert {op.name for op, spec in todo if spec.in_place} == {
        "all_gather",
        "gather",
        "reduce_scatter",
        "scatter",
    }
    world = WorldSpec(3, start_method="fork", deadline=60, lazy=False)
    report = run_world(world, verified, (todo,))
    assert report.ok, report.verdict
    for number, (op, spec) in enumerate(todo):
        for rank, found in enumerate(report.values):
            elements = received(op, rank, spec)
            assert found[number] == [(elements, 0)] * CALLS, (op.name, spec, rank)
