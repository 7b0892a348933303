from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distdemo import ops
from distdemo.backends.gloo import Gloo
from distdemo.dtypes import DTYPES, DType
from distdemo.model import OpSpec
from distdemo.ops.buffers import expected, held_before, make_buffers
from distdemo.ops.contract import Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.programs.verify import verify

Held = list[list[list[Any]]]  # by rank, piece and element

# ------------------------------------- what each op should do, in a line of plain Python each


def all_ranks(held: Held, spec: OpSpec) -> list[list[Any]]:
    return [pieces[0] for pieces in held]


SHOULD: dict[str, Callable[[int, Held, OpSpec], list[list[Any]] | None]] = {
    "broadcast": lambda rank, held, spec: held[spec.root or 0],
    "reduce": lambda rank, held, spec: [folded(held, spec)] if rank == spec.root else None,
    "all_reduce": lambda rank, held, spec: [folded(held, spec)],
    "scatter": lambda rank, held, spec: [held[spec.root or 0][rank]],
    "gather": lambda rank, held, spec: all_ranks(held, spec) if rank == spec.root else [],
    "all_gather": lambda rank, held, spec: all_ranks(held, spec),
    "p2p": lambda rank, held, spec: (
        held[(rank - 1) % spec.world_size]
        if spec.pattern == "ring"
        else held[(spec.src or 0) if rank == spec.dst else rank]
    ),
}

FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "avg": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def folded(held: Held, spec: OpSpec) -> list[Any]:
    """All ranks' tensors reduced, without rounding and without limits."""
    combine = FOLDS[spec.reduce_op or "sum"]
    columns = zip(*all_ranks(held, spec), strict=True)
    totals = [reduce(combine, map(unlimited, column)) for column in columns]
    if spec.reduce_op == "avg":
        totals = [total / spec.world_size for total in totals]
    return totals


def unlimited(number: Any) -> Any:
    return Fraction(number) if isinstance(number, float) else number


def as_stored(number: Any, dtype: DType) -> Any:
    """What a memory cell of this type holds of a number: integers wrap, the others are rounded."""
    if dtype.kind == "int":
        span = dtype.exact - dtype.lowest + 1
        return (number - dtype.lowest) % span + dtype.lowest
    if dtype.kind == "bool":
        return bool(number)
    exact = number if isinstance(number, complex) else float(number)
    return torch.tensor(exact, dtype=getattr(torch, dtype.name)).item()


# --------------------------------------------------------------------------------- any request


def numbers(dtype: DType) -> st.SearchStrategy[Any]:
    """Numbers that the type holds exactly; quarters, for the floating-point ones."""
    quarters = st.integers(-32, 32).map(lambda number: number / 4)
    return {
        "int": st.integers(dtype.lowest, dtype.exact),
        "bool": st.booleans(),
        "float": quarters,
        "complex": st.builds(complex, quarters, quarters),
    }[dtype.kind]


@st.composite
def requests(draw: st.DrawFn) -> tuple[Op, OpSpec]:
    op = draw(st.sampled_from(list(ops.REGISTRY.values())))
    n = draw(st.integers(op.smallest_world, 6))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    reduce_op = draw(st.sampled_from(sorted(REDUCTIONS))) if "reduce_op" in op.takes else None
    assume(Gloo().refuses(op.name, dtype, reduce_op) is None)
    more: dict[str, Any] = {}
    if "root" in op.takes:
        more["root"] = draw(st.integers(0, n - 1))
    if "pattern" in op.takes:
        more["pattern"] = draw(st.sampled_from(["pair", "ring"]))
        if more["pattern"] == "pair":
            more["src"] = draw(st.integers(0, n - 1))
            more["dst"] = (more["src"] + draw(st.integers(1, n - 1))) % n
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    spec = OpSpec(op.name, n, dtype, shape, reduce_op, **more)
    if draw(st.booleans()):
        row = st.lists(numbers(DTYPES[dtype]), min_size=spec.numel, max_size=spec.numel).map(tuple)
        values = tuple(draw(row) for _ in range(n))
        spec = OpSpec(op.name, n, dtype, shape, reduce_op, values=values, **more)
    return op, spec


def inputs(op: Op, spec: OpSpec) -> Held:
    return [
        [piece.reshape(-1).tolist() for piece in held_before(op, rank, spec)]
        for rank in range(spec.world_size)
    ]


@settings(deadline=None, max_examples=400)
@given(requests())
def test_what_is_expected_is_what_plain_python_computes(request: tuple[Op, OpSpec]) -> None:
    op, spec = request
    held = inputs(op, spec)
    dtype = DTYPES[spec.dtype]
    for rank in range(spec.world_size):
        should = SHOULD[op.name](rank, held, spec)
        does = expected(op, rank, spec)
        if should is None or does is None:
            assert should is None
            assert does is None
            continue
        assert all(piece.tensor.shape == spec.shape for piece in does)
        assert all(piece.tensor.dtype == getattr(torch, spec.dtype) for piece in does)
        got = [piece.tensor.reshape(-1).tolist() for piece in does]
        assert got == [[as_stored(number, dtype) for number in piece] for piece in should]


@settings(deadline=None, max_examples=100)
@given(requests())
def test_given_values_are_what_the_ranks_hold(request: tuple[Op, OpSpec]) -> None:
    op, spec = request
    assume(spec.values is not None)
    assert spec.values is not None
    for rank, pieces in enumerate(inputs(op, spec)):
        for number, piece in enumerate(pieces):
            row = spec.values[number if op.name == "scatter" else rank]
            assert tuple(piece) == row


# --------------------------------------------------------------------------------- the inputs


def test_a_row_that_was_not_given_is_zeros() -> None:
    spec = OpSpec("broadcast", 2, shape=(2,), root=1, values=(None, (5.0, 6.0)))
    held = inputs(ops.REGISTRY["broadcast"], spec)
    assert held == [[[0.0, 0.0]], [[5.0, 6.0]]]


def test_fill_is_one_number_everywhere_or_each_rank_s_own() -> None:
    op = ops.REGISTRY["all_reduce"]
    assert inputs(op, OpSpec("all_reduce", 2, shape=(2,), fill=7)) == [[[7.0] * 2]] * 2
    assert inputs(op, OpSpec("all_reduce", 2, shape=(2,), fill="rank")) == [
        [[0.0] * 2],
        [[1.0] * 2],
    ]


@pytest.mark.parametrize("fill", [2**70, -(2**70)])
def test_a_whole_number_that_a_float_holds_can_fill_it_however_large(fill: int) -> None:
    # The command line accepts it, so no rank may stumble over it.
    spec = OpSpec("broadcast", 1, "float64", (2,), fill=fill)
    assert inputs(ops.REGISTRY["broadcast"], spec) == [[[float(fill)] * 2]]


# --------------------------------------------------------------------------------- the buffers


@pytest.mark.parametrize("name", ["broadcast", "reduce", "all_reduce"])
def test_in_place_the_result_lies_where_the_input_was(name: str) -> None:
    buffers = make_buffers(ops.REGISTRY[name], 1, OpSpec(name, 3), "cpu")
    assert len(buffers.send) == len(buffers.recv) == 1
    assert buffers.send[0].data_ptr() == buffers.recv[0].data_ptr()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_separate_buffers_are_as_many_as_the_results_and_share_no_memory(dtype: str) -> None:
    buffers = make_buffers(ops.REGISTRY["all_gather"], 1, OpSpec("all_gather", 3, dtype), "cpu")
    every = [*buffers.send, *buffers.recv]
    assert len(buffers.recv) == 3
    assert len({tensor.data_ptr() for tensor in every}) == 4
    assert {(tensor.dtype, tensor.shape) for tensor in every} == {(getattr(torch, dtype), (4,))}


def test_a_rank_that_gets_nothing_has_no_buffer_for_it() -> None:
    gather, scatter = ops.REGISTRY["gather"], ops.REGISTRY["scatter"]
    assert make_buffers(gather, 0, OpSpec("gather", 2, root=1), "cpu").recv == []
    assert make_buffers(scatter, 0, OpSpec("scatter", 2, root=1), "cpu").send == []
    assert len(make_buffers(scatter, 1, OpSpec("scatter", 2, root=1), "cpu").send) == 2


@pytest.mark.parametrize("numel", [1, 4, 28, 56, 128, 256, 300])
@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bool"}))
def test_no_default_value_looks_like_a_buffer_that_was_never_written(
    dtype: str, n: int, numel: int
) -> None:
    op, spec = ops.REGISTRY["all_gather"], OpSpec("all_gather", n, dtype, (numel,))
    unwritten = make_buffers(op, 0, spec, "cpu").recv
    wanted = expected(op, 0, spec)
    assert wanted is not None
    assert verify(unwritten, wanted).wrong == n * numel
