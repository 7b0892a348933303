"""The data of a measurement: its values, its verification, and bound calls on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from strategies import FORMS, example

from distdemo import ops
from distdemo.bench.rank import check, refill
from distdemo.ops.buffers import laid_out
from distdemo.ops.contract import Buffers, Op, Undefined
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


def test_every_element_depends_on_label_and_position_in_the_period() -> None:
    for each in (
        OpSpec("all_reduce", 2, reduce_op="sum", seed=7),
        OpSpec("reduce_scatter", 2, variant="single", reduce_op="avg"),
        OpSpec("scatter", 2, root=1, dtype="uint8", seed=7),
        OpSpec("all_to_all", 2, variant="single", dtype="complex128"),
    ):
        for numel in (1, USUAL, LONG):
            op, spec = all_of(each, shape=(numel,))
            assert numel % period(spec), "two parts of a row would be equal"
            for rank in range(spec.group_size):
                buffers = done(op, rank, spec)
                for piece, tensor in enumerate(() if op.is_in_place(spec) else buffers.send):
                    assert torch.equal(tensor, row(op, rank, piece, spec).to(tensor.dtype)), spec
                checked, wrong = check(op, rank, spec, buffers)
                assert (checked, wrong) == (sum(map(torch.numel, buffers.recv)), 0), spec


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


def test_every_wrong_element_is_counted_and_moved_data_matches_bit_for_bit() -> None:
    op, spec = all_of(OpSpec("all_gather", 3, "float64", (LONG,), variant="list"))
    buffers = done(op, 1, spec)
    assert buffers.recv[0][0] == 0  # it counts from zero
    buffers.recv[0][0] = -0.0
    buffers.recv[0][1:10] = float("nan")
    buffers.recv[1][:] += 1
    buffers.recv[2][USUAL - 5 : USUAL + 5] = -1
    assert check(op, 1, spec, buffers) == (3 * LONG, 10 + LONG + 10)


def test_misplaced_elements_are_found() -> None:
    op, spec = all_of(OpSpec("all_gather", 2, shape=(2 * LONG,), variant="list"))
    for shift in (1, 1 << 14, 1 << 17, LONG // 2):
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


def test_a_reduction_that_rounds_is_compared_with_its_bound() -> None:
    op, spec = all_of(OpSpec("all_reduce", 3, shape=(LONG,), reduce_op="avg", seed=5))
    for off, wrong in ((1, 0), (1 << 12, LONG)):
        buffers = done(op, 0, spec)
        buffers.recv[0].view(torch.int32).add_(off)  # units in the last place
        checked, found = check(op, 0, spec, buffers)
        assert checked == LONG
        assert found == pytest.approx(wrong, abs=LONG // 1000)  # a zero steps to almost nothing
