"""The data of a measurement: its values, and its verification."""

from __future__ import annotations

import pytest
import torch
from strategies import FORMS, example

from distdemo import ops
from distdemo.bench.rank import check, refill
from distdemo.ops.buffers import laid_out
from distdemo.ops.contract import Buffers, Undefined
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import PERIODS, element, period, value_rule

USUAL = PERIODS[0]
LONG = 2 * USUAL + 777  # two periods and a rest


def make(rank: int, spec: OpSpec) -> Buffers:
    op = ops.REGISTRY[spec.op]
    buffers = laid_out(op, rank, spec, "cpu")
    refill(op, rank, spec, buffers)
    return buffers


def done(rank: int, spec: OpSpec) -> Buffers:
    """Return the buffers that the op should produce, computed per element without a period."""
    op = ops.REGISTRY[spec.op]
    buffers = make(rank, spec)
    result = op.result(rank, spec)
    sources = () if isinstance(result, Undefined) else result
    for source, target in zip(sources, buffers.recv, strict=True):
        pieces = [values_of(giver, source.piece, spec) for giver in source.ranks]
        total = torch.stack(pieces).sum(dim=0) if source.reduced else pieces[0]
        if spec.reduce_op == "avg":
            total = total / len(pieces)
        target.copy_(total.reshape(target.shape))
    return buffers


def values_of(rank: int, piece: int, spec: OpSpec) -> torch.Tensor:
    """Return the values of a piece, computed per element by the rule in ``bench.rank``."""
    op = ops.REGISTRY[spec.op]
    cut = op.cut(rank, piece, spec)
    positions = (cut.start + torch.arange(cut.numel)) % period(spec)
    values: torch.Tensor = element(value_rule(op, spec), torch.tensor(cut.label), positions)
    return values.to(torch.float64)


def counts(rank: int, spec: OpSpec, buffers: Buffers) -> tuple[int, int]:
    return check(ops.REGISTRY[spec.op], rank, spec, buffers)


@pytest.mark.parametrize(
    ("name", "dtype", "reduce_op"),
    [
        ("broadcast", "float32", None),
        ("broadcast", "bool", None),
        ("all_reduce", "float64", "sum"),
        ("all_reduce", "bfloat16", "sum"),
        ("all_reduce", "int8", "max"),
    ],
)
def test_a_single_wrong_element_is_found_wherever_it_is(name, dtype, reduce_op) -> None:
    spec = OpSpec(name, 1, dtype, (LONG,), reduce_op=reduce_op, root=0, seed=3)
    for position in (0, USUAL - 1, USUAL, LONG - 1):
        buffers = make(0, spec)
        assert counts(0, spec, buffers) == (LONG, 0)
        width = buffers.recv[0].element_size()
        buffers.recv[0].view(-1).view(torch.uint8)[position * width] ^= 1
        assert counts(0, spec, buffers) == (LONG, 1), position


def test_every_wrong_element_is_counted() -> None:
    spec = OpSpec("all_gather", 3, "float64", (LONG,), variant="list")
    buffers = done(1, spec)
    buffers.recv[0][:10] = float("nan")
    buffers.recv[1][:] += 1
    buffers.recv[2][USUAL - 5 : USUAL + 5] = -1
    assert counts(1, spec, buffers) == (3 * LONG, 10 + LONG + 10)


def test_unwritten_buffers_are_wrong_everywhere() -> None:
    for op, form in FORMS:
        if form.name == "objects" or op.is_barrier:
            continue
        spec = example(op, form, 3, seed=4)
        for rank in range(0 if op.is_in_place(spec) else 3):
            checked, wrong = counts(rank, spec, make(rank, spec))
            assert wrong == checked == sum(map(torch.numel, make(rank, spec).recv)), spec


def test_a_reduction_that_rounds_is_compared_with_its_bound() -> None:
    spec = OpSpec("all_reduce", 3, shape=(LONG,), reduce_op="avg", seed=5)
    for off, expected in ((1, 0), (1 << 12, LONG)):
        buffers = done(0, spec)
        buffers.recv[0].view(torch.int32).add_(off)  # units in the last place
        checked, wrong = counts(0, spec, buffers)
        assert checked == LONG
        assert wrong == pytest.approx(expected, abs=LONG // 1000)  # a zero steps to almost nothing
